# Shared by the scripts of this folder, which source it; medians as src/bench/figure.h has them.
#
#   row NAME UNIT < values      prints `NAME  median UNIT  (low .. high)`
#   takes MOST ARGUMENTS...     --help prints the script's head; other options, or more arguments, are refused
#   is_within LEAST MOST TEXT   whether it is a whole number from LEAST to MOST
#   refuse WHAT                 ends it with exit code 2
#   wants_weft                  refuses to run before weft is built

is_within() { [[ $3 =~ ^[0-9]{1,6}$ ]] && ((10#$3 >= $1 && 10#$3 <= $2)); }

refuse() { echo "tests/bench/${0##*/}: $1 (--help says more)" >&2; exit 2; }

wants_weft() { [ -x build/weft ] || refuse "build/weft isn't there: make builds it"; }

takes() {
    local most=$1
    shift
    case ${1:-} in
    --help | -h)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]%/*}/${0##*/}"
        exit ;;
    -*) refuse "$1: there is no such option" ;;
    esac
    [ $# -le "$most" ] || refuse "${*:most + 1}: not expected"
}

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
