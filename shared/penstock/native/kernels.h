/* What all kernels share. Nothing here calls Python: the library is loaded by ctypes, which releases Python's lock. */
#ifndef PENSTOCK_KERNELS_H
#define PENSTOCK_KERNELS_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* One column of values: what it has depends on its kind. Texts are places in the input. */
typedef struct {
  uint8_t *valid;
  int64_t *number;
  int32_t *start, *end;
} Out;
#endif
