# Shared by the scripts of this folder: medians as src/bench/figure.h has them.
#
#   row NAME UNIT < values      prints `NAME  median UNIT  (low .. high)`

row() {
    sort -g | awk -v name="$1" -v unit="$2" '
        { v[NR] = $1 }
        END {
            if (!NR) { printf "%-44s  nothing was measured\n", name; exit }
            chance = below = 0.5 ^ NR; k = 1
            for (heads = 1; heads < int(NR / 2); heads++) {
                chance *= (NR - heads + 1) / heads; below += chance
                if (below > 0.025) break
                k = heads + 1
            }
            median = (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2
            printf "%-44s %9.3f %s  (%.3f .. %.3f)\n", name, median, unit, v[k], v[NR + 1 - k]
        }'
}
