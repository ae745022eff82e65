/* WIDE before the definition of a static function: it is compiled twice, as the whole program is
 * and for cores with AVX-512 (x86-64-v4), and the loader takes the one for the core at hand. What
 * is inline in it goes into both. (Static, for with clang 14 a caller in another file would have to
 * know.)
 *
 * Nothing but speed depends on which: its loops are elementwise, or sums in a fixed number of
 * lanes, and roundings are written down (-ffp-contract=off). The program for tests (WEFT_FAULTS)
 * has the narrow ones alone, so that what both of them train can be compared. */
#ifndef WEFT_BASE_WIDE_H
#define WEFT_BASE_WIDE_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WIDE_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WIDE_SANITIZED
#endif

/* The loader chooses before the sanitizers are ready; C libraries other than glibc can't. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(WEFT_FAULTS) && !defined(WIDE_SANITIZED)
#define WIDE_HERE
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define WIDE
#endif

#endif
