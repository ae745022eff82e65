#!/bin/bash
# Shows that every lint rule can go red: a small tree with one offence in each file is linted, and
# each offence must be named; the same tree without them must be clean.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree" || exit 2
mkdir -p src/base src/math src/comm src/run src/cli src/checkpoint tests/unit
passed=0 failed=0

expect() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "not seen: $name"
    fi
}
reported() { grep -q "^[^ ]*$1: $2: " report; } # PATH:LINE RULE

lines() { for ((i = 0; i < $1; i++)); do echo "$2"; done; } # COUNT TEXT

# ---- a clean tree -------------------------------------------------------------------------------
cat >src/base/good.h <<'C'
/* A header that owns one function. */
#ifndef WEFT_BASE_GOOD_H
#define WEFT_BASE_GOOD_H

/* Returns the sum. */
int good_sum(int a, int b);

#endif
C
cat >src/base/good.c <<'C'
#include "base/good.h"

/* exit(1) and a "reduction(" in a comment, or MPI_SUM, harm nobody. */
static const char *const text = "strcpy(a, b); /* no comment";

int good_sum(int a, int b) { return text[0] == 's' ? a + b : 0; }
C
cat >src/comm/good.c <<'C'
#include <mpi.h>

#include "base/good.h"

int comm_good(void);
int comm_good(void) { return good_sum(MPI_SUM == MPI_MAX, 1); }
C
{
    echo '#include "base/good.h"'
    echo
    echo 'int main(void) {'
    lines 58 '    (void)good_sum(1, 2);'
    echo '}'
} >src/cli/main.c
echo 'int main(void) { return 0; }' >tests/unit/good.c
echo 'good | 0 | build/tests/f32/good' >tests/list
"$here/run" "$tree" >report 2>&1
expect "a clean tree passes" test $? -eq 0
expect "every rule counts" grep -qx '10 passed, 0 failed' report
[ $failed -eq 0 ] || cat report

# ---- one offence a file -------------------------------------------------------------------------
echo '#include "run/loop.h"' >src/math/upward.c
echo '/* What the loop owns. */' >src/run/loop.h
echo '#include "comm/tree.h"' >src/math/sideways.c
echo '/* The tree. */' >src/comm/tree.h
echo '#include "good.h"' >src/base/bare.c
echo '#include <mpi.h>' >src/run/mpi.c
echo '#include <cblas.h>' >src/math/norm.c
echo '#include <hdf5.h>' >src/run/hdf5.c
mkdir -p src/misc && echo 'typedef int misc_int;' >src/misc/misc.c

for name in strcpy strcat sprintf gets atoi atof strtok rand srand exit _exit abort printf; do
    printf 'void %s();\n\nvoid caller(void);\nvoid caller(void) { %s(); }\n' $name $name \
        >"src/base/calls_$name.c"
done
printf '#include <stdio.h>\n\nvoid say(void);\nvoid say(void) { fprintf(stderr, "x"); }\n' \
    >src/base/calls_stderr.c
printf 'double sum(const double *x);\ndouble sum(const double *x) {\n    double s = 0;\n%s\n%s\n' \
    '#pragma omp parallel for \' '    reduction(+ : s)' >src/math/reduction.c
printf '    for (int i = 0; i < 9; i++) s += x[i];\n    return s;\n}\n' >>src/math/reduction.c
echo '#pragma STDC FP_CONTRACT ON' >src/math/contract.c
echo 'int sum = MPI_SUM;' >src/run/mpi_sum.c
echo '/* TO''DO */' >src/run/unfinished.c

{ echo 'int f(void);'; echo 'int f(void) {'; lines 58 '    ;'; echo '    return 0;'; echo '}'; } \
    >src/run/long_function.c
{ echo 'int f(int a,'; echo '      int b) {'; lines 58 '    ;'; echo '    return a + b;'; echo '}'; } \
    >src/run/long_two_line_function.c
lines 501 '' >src/run/long_file.c
printf 'int %0100d;\n' 0 | tr 0 x >src/run/long_line.c
printf 'int  f( void );\n' >src/run/unformatted.c
printf 'int  f( void );\n' >src/run/bare.h
printf '/* Needs a type. */\nint64_t f(void);\n' >src/run/dependent.h
printf 'static int unused(int x) { return 0; }\n' >src/run/warned.c
printf 'int main(void) { return 0; }\n' >tests/unit/forgotten.c
mkdir -p tests/failure-lab
printf '    {"unmade", "nobody makes it"},\n' >src/base/mistakes.c
printf 'bool f(void) { return fault_on("unlisted"); }\n' >src/run/mistaken.c
printf 'unknown | is no mistake | good | test | word\n' >tests/failure-lab/list

"$here/run" "$tree" >report 2>&1
expect "a bad tree fails" test $? -ne 0
expect "every rule is red" grep -qx '0 passed, 10 failed' report
for name in upward sideways norm; do expect $name reported src/math/$name.c:1 layers; done
for name in mpi hdf5; do expect $name reported src/run/$name.c:1 layers; done
expect bare reported src/base/bare.c:1 layers
expect misc reported src/misc/misc.c:1 layers
for name in strcpy strcat sprintf gets atoi atof strtok rand srand exit _exit abort printf stderr; do
    expect $name reported src/base/calls_$name.c:4 banned
done
expect reduction reported src/math/reduction.c:5 banned
expect contract reported src/math/contract.c:1 banned
expect MPI_SUM reported src/run/mpi_sum.c:1 banned
expect unfinished reported src/run/unfinished.c:1 banned
expect long_function reported src/run/long_function.c:2 size
expect long_two_line_function reported src/run/long_two_line_function.c:1 size
expect long_file reported src/run/long_file.c:501 size
expect long_line reported src/run/long_line.c:1 size
expect unformatted reported src/run/unformatted.c:1 format
expect bare_header reported src/run/bare.h:1 headers
expect dependent reported run/dependent.h:2 self-contained
expect warned_gcc reported src/run/warned.c:1 gcc
expect warned_clang reported src/run/warned.c:1 clang
expect "a mistake that nobody makes" grep -q 'mistakes: nobody makes unmade' report
expect "a mistake without a row" grep -q 'mistakes: unmade has no row' report
expect "a mistake that is no mistake" grep -q "list:1: mistakes: unknown isn't in" report
expect "a mistake that is asked for" grep -q 'mistakes: unlisted is asked for' report
expect forgotten reported tests/unit/forgotten.c:1 listed

[ $failed -eq 0 ] || cat report
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
