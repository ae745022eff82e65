/* The main functions of the test programs.
 *
 * A test program defines Check tests and hands them to one of the two runners:
 *
 *     START_TEST(rows_add_up) { ck_assert_int_eq(1 + 1, 2); }
 *     END_TEST
 *
 *     int main(void) { return run_suite("sums", TESTS(rows_add_up)); }
 *
 * A program under tests/mpi writes instead
 *
 *     int main(int argc, char **argv) {
 *         return run_mpi_suite(&argc, &argv, "tree", TESTS(rows_add_up));
 *     }
 *
 * In the environment WEFT_TEST names the one test to run, WEFT_PATIENCE_MS says how long a rank
 * that failed waits for the others (10 s), and WEFT_INJECT switches a fault on (base/fault.h;
 * programs of the faults build).
 *
 * Both end with the total line "100%: Checks: 1, Failures: 0, Errors: 0" that tests/run reads,
 * and return 0 only when at least one test ran and none failed.
 */
#ifndef WEFT_TESTS_SUPPORT_H
#define WEFT_TESTS_SUPPORT_H

#include <check.h>

/* Check notes the place of each assertion that holds, with a write to a file: in a loop over
 * elements that takes longer than what is tested. It would only be told of a test that crashes. */
#define _mark_point(file, line) ((void)0)

/* A list of Check tests for the runners below. */
#define TESTS(...) ((const TTest *[]){__VA_ARGS__, NULL})

/* Runs the tests of a program without MPI, each in its own process. Returns main's exit code. */
int run_suite(const char *name, const TTest *const *tests);

/* Initialises MPI (MPI_THREAD_FUNNELED) if nobody has, runs every test on all ranks in step and
 * finalises. A test counts as failed when it failed on any rank; each rank names its own failures.
 * A rank whose test failed waits for the others, which may hang in a collective, and then aborts
 * the job. Collective over MPI_COMM_WORLD. Returns main's exit code, equal on all ranks. */
int run_mpi_suite(int *argc, char ***argv, const char *name, const TTest *const *tests);

#endif
