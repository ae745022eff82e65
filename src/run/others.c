#include "run/others.h"

#include "base/clock.h"

#include <sys/resource.h>
#include <unistd.h>

double others_busy(FILE *stat, const cpu_set_t *cores) {
    char line[512];
    double ticks = 0;
    while (fgets(line, sizeof line, stat)) {
        int core;
        double user, nice, system, interrupts, soft, stolen; /* idle and waiting left out */
        if (sscanf(line, "cpu%d %lf %lf %lf %*f %*f %lf %lf %lf", &core, &user, &nice, &system,
                   &interrupts, &soft, &stolen) == 7 &&
            core < CPU_SETSIZE && CPU_ISSET(core, cores))
            ticks += user + nice + system + interrupts + soft + stolen;
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static double busy_now(const cpu_set_t *cores) {
    FILE *stat = fopen("/proc/stat", "re");
    if (!stat) return -1;
    double busy = others_busy(stat, cores);
    fclose(stat);
    return busy;
}

static double seconds_of(struct timeval time) {
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

static double own_now(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

void others_begin(Others *others) {
    *others = (Others){.since = clock_seconds(), .busy = -1, .own = own_now()};
    if (!sched_getaffinity(0, sizeof others->cores, &others->cores))
        others->busy = busy_now(&others->cores);
}

double others_share(const Others *others) {
    double busy = others->busy < 0 ? -1 : busy_now(&others->cores);
    double all = CPU_COUNT(&others->cores) * (clock_seconds() - others->since);
    double theirs = busy - others->busy - (own_now() - others->own);
    return busy > 0 && all > 0 && theirs > 0 ? theirs / all : 0;
}
