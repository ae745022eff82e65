#include "support/support.h"

#include "base/error.h"
#include "base/fault.h"

#include <limits.h>
#include <malloc.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEST_TIMEOUT_S = 240, PATIENCE_MS = 10000 };

static void print_total(const char *name, int checks, int failures, int errors) {
    int passed = checks - failures - errors;
    printf("%s\n%d%%: Checks: %d, Failures: %d, Errors: %d\n", name,
           checks ? 100 * passed / checks : 0, checks, failures, errors);
    fflush(stdout);
}

/* Runs one test; prints what failed, with `where` before it. Returns its result type. */
static enum test_result run_test(const TTest *test, enum fork_status fork_status,
                                 const char *where) {
    Suite *suite = suite_create(test->name);
    TCase *tcase = tcase_create(test->name);
    tcase_set_timeout(tcase, TEST_TIMEOUT_S);
    tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    if (fork_status == CK_NOFORK) srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    TestResult **results = srunner_results(runner);
    enum test_result type = (enum test_result)tr_rtype(results[0]);
    if (type != CK_PASS) {
        fprintf(stderr, "%s%s:%d: %s: %s\n", where, tr_lfile(results[0]), tr_lno(results[0]),
                test->name, tr_msg(results[0]));
    }
    free(results);
    srunner_free(runner);
    return type;
}

/* What a test frees stays at hand for the next: the kernel would clear the same megabytes of
 * scratch memory for each. 32 MB is as much as malloc can be told. */
static void keep_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

static void take_faults(void) {
    if (!fault_parse_environment()) return;
    fprintf(stderr, "%s\n", error_message());
    exit(2);
}

/* The next test from *i on that is wanted; NULL at the end. */
static const TTest *next_test(const TTest *const *tests, int *i) {
    const char *only = getenv("WEFT_TEST");
    while (only && tests[*i] && strcmp(tests[*i]->name, only)) ++*i;
    return tests[*i] ? tests[(*i)++] : NULL;
}

int run_suite(const char *name, const TTest *const *tests) {
    int checks = 0, failures = 0, errors = 0;
    keep_memory();
    take_faults();
    const TTest *test;
    for (int i = 0; (test = next_test(tests, &i)); checks++) {
        enum test_result type = run_test(test, CK_FORK_GETENV, "");
        failures += type == CK_FAILURE;
        errors += type == CK_ERROR;
    }
    print_total(name, checks, failures, errors);
    return checks > 0 && failures + errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* True when the test failed anywhere. A rank that failed may have left the others in a collective
 * that it will never join: then nobody answers, and the job must end. */
static bool failed_anywhere(bool failed_here, const char *test, MPI_Comm comm) {
    int here = failed_here, anywhere = 0, done = 0;
    const char *patience = getenv("WEFT_PATIENCE_MS");
    long most = patience ? strtol(patience, NULL, 10) : PATIENCE_MS;
    MPI_Request request;
    MPI_Iallreduce(&here, &anywhere, 1, MPI_INT, MPI_MAX, comm, &request);
    if (!failed_here) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return anywhere;
    }
    for (long waited = 0; !done; waited++) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done && waited == most) {
            fprintf(stderr, "%s: the other ranks did not reach the end of this test\n", test);
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        }
        if (!done) usleep(1000);
    }
    return true;
}

int run_mpi_suite(int *argc, char ***argv, const char *name, const TTest *const *tests) {
    int initialized = 0, finalized = 0, rank, size, provided, checks = 0, failures = 0;
    char where[64];
    MPI_Comm comm;
    MPI_Initialized(&initialized);
    if (!initialized) MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    snprintf(where, sizeof where, "rank %d of %d: ", rank, size);
    keep_memory();
    take_faults();
    const TTest *test;
    for (int i = 0; (test = next_test(tests, &i)); checks++) {
        bool failed = run_test(test, CK_NOFORK, where) != CK_PASS;
        failures += failed_anywhere(failed, test->name, comm);
    }
    if (rank == 0) print_total(name, checks, failures, 0);
    MPI_Comm_free(&comm);
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Finalize();
    return checks > 0 && failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
