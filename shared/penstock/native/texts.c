/* Copies pieces of a buffer behind one another, as an Arrow string or binary array holds them. */
#include "kernels.h"

/* offsets: one more than pieces, the first is 0. The caller has made data as long as all pieces together. */
void penstock_gather(const uint8_t *text, const int32_t *start, const int32_t *end, int64_t count, int32_t *offsets,
                     uint8_t *data) {
  int32_t at = 0;
  offsets[0] = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t length = end[i] - start[i];
    memcpy(data + at, text + start[i], (size_t)length);
    offsets[i + 1] = at += length;
  }
}
