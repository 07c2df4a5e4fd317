/* Columns to one text or record a row, end to end. A row is its parts in their order; each column is one part. */
#include "kernels.h"

enum { CONSTANT, NUMBER, FLAG, TEXT, TIMESTAMP, DATE, ZIGZAG, BYTE, FIXED, BYTES };

typedef struct {
  int32_t kind, width;       /* width: bytes of a value in memory */
  int32_t lead_at, lead_len; /* constant bytes in front of a value */
  int32_t null_at, null_len; /* constant bytes for a NULL: no lead and no value */
  int64_t unit;              /* ZIGZAG: values are divided by it, rounded down; TIMESTAMP: between date and time, + 256 = with Z */
  const uint8_t *valid;      /* NULL: every row has a value */
  const uint8_t *values;
  const int32_t *offsets; /* TEXT, BYTES */
} Part;

static inline int64_t integer(const uint8_t *values, int32_t width, int64_t row) {
  int8_t a;
  int16_t b;
  int32_t c;
  int64_t d;
  switch (width) {
    case 1:
      memcpy(&a, values + row, 1);
      return a;
    case 2:
      memcpy(&b, values + 2 * row, 2);
      return b;
    case 4:
      memcpy(&c, values + 4 * row, 4);
      return c;
  }
  memcpy(&d, values + 8 * row, 8);
  return d;
}

static inline uint8_t *copy(uint8_t *out, const uint8_t *from, int64_t length) {
  memcpy(out, from, (size_t)length);
  return out + length;
}

static uint8_t *digits(uint8_t *out, int64_t value) {
  uint8_t text[20];
  int at = 20;
  uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do text[--at] = (uint8_t)('0' + left % 10), left /= 10;
  while (left);
  if (value < 0) *out++ = '-';
  return copy(out, text + at, 20 - at);
}

static inline uint8_t *padded(uint8_t *out, int64_t value, int count) {
  for (int i = count - 1; i >= 0; i--) out[i] = (uint8_t)('0' + value % 10), value /= 10;
  return out + count;
}

/* YYYY-MM-DD of a number of days since 1970; NULL outside the years 1 to 9999. */
static uint8_t *date(uint8_t *out, int64_t days) {
  if (days < -719162 || days > 2932896) return NULL;
  int64_t z = days + 719468, era = z / 146097, of_era = z - era * 146097;
  int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  int64_t m = (5 * of_year + 2) / 153, month = m < 10 ? m + 3 : m - 9;
  out = padded(out, year_of_era + era * 400 + (month <= 2), 4);
  *out++ = '-';
  out = padded(out, month, 2);
  *out++ = '-';
  return padded(out, of_year - (153 * m + 2) / 5 + 1, 2);
}

static uint8_t *timestamp(uint8_t *out, int64_t us, int64_t form) {
  int64_t day = 86400000000LL, days = us / day, left = us % day;
  if (left < 0) left += day, days--;
  if (!(out = date(out, days))) return NULL;
  *out++ = (uint8_t)(form & 0xff);
  int64_t seconds = left / 1000000, fraction = left % 1000000;
  out = padded(out, seconds / 3600, 2);
  *out++ = ':';
  out = padded(out, seconds / 60 % 60, 2);
  *out++ = ':';
  out = padded(out, seconds % 60, 2);
  if (fraction) {
    *out++ = '.';
    out = padded(out, fraction, 6);
    while (out[-1] == '0') out--;
  }
  if (form & 256) *out++ = 'Z';
  return out;
}

static uint8_t *escaped(uint8_t *out, const uint8_t *s, const uint8_t *e) {
  static const char hex[] = "0123456789abcdef";
  for (; s < e; s++) {
    uint8_t c = *s;
    if (c >= 0x20 && c != '"' && c != '\\') {
      *out++ = c;
      continue;
    }
    *out++ = '\\';
    switch (c) {
      case '\b':
        *out++ = 'b';
        break;
      case '\f':
        *out++ = 'f';
        break;
      case '\n':
        *out++ = 'n';
        break;
      case '\r':
        *out++ = 'r';
        break;
      case '\t':
        *out++ = 't';
        break;
      case '"':
      case '\\':
        *out++ = c;
        break;
      default:
        out = copy(out, (const uint8_t *)"u00", 3);
        *out++ = (uint8_t)hex[c >> 4];
        *out++ = (uint8_t)hex[c & 15];
    }
  }
  return out;
}

static uint8_t *zigzag(uint8_t *out, int64_t value) {
  uint64_t left = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
  while (left > 0x7f) *out++ = (uint8_t)(left | 0x80), left >>= 7;
  *out++ = (uint8_t)left;
  return out;
}

/* How many of these bytes JSON escapes. */
int64_t penstock_escapes(const uint8_t *text, int64_t length) {
  int64_t found = 0;
  for (int64_t i = 0; i < length; i++) found += (text[i] < 0x20) | (text[i] == '"') | (text[i] == '\\');
  return found;
}

/* ends: where each row ends. The caller has made out long enough. Returns the rows written: fewer than all, if one
   has a time without a form. */
int64_t penstock_encode(const Part *parts, int32_t count, int64_t rows, const uint8_t *constants, uint8_t *out,
                        int32_t *ends) {
  uint8_t *at = out;
  for (int64_t row = 0; row < rows; row++) {
    for (const Part *part = parts; part < parts + count; part++) {
      if (part->valid && !part->valid[row]) {
        at = copy(at, constants + part->null_at, part->null_len);
        continue;
      }
      at = copy(at, constants + part->lead_at, part->lead_len);
      int64_t n;
      switch (part->kind) {
        case NUMBER:
          at = digits(at, integer(part->values, part->width, row));
          break;
        case FLAG:
          at = part->values[row] ? copy(at, (const uint8_t *)"true", 4) : copy(at, (const uint8_t *)"false", 5);
          break;
        case TEXT:
          *at++ = '"';
          at = escaped(at, part->values + part->offsets[row], part->values + part->offsets[row + 1]);
          *at++ = '"';
          break;
        case TIMESTAMP:
        case DATE:
          *at++ = '"';
          n = integer(part->values, part->width, row);
          at = part->kind == DATE ? date(at, n) : timestamp(at, n, part->unit);
          if (!at) return row;
          *at++ = '"';
          break;
        case ZIGZAG:
          n = integer(part->values, part->width, row);
          if (part->unit != 1) n = n / part->unit - (n % part->unit < 0);
          at = zigzag(at, n);
          break;
        case BYTE:
          *at++ = part->values[row] != 0;
          break;
        case FIXED:
          at = copy(at, part->values + part->width * row, part->width);
          break;
        case BYTES:
          n = part->offsets[row + 1] - part->offsets[row];
          at = copy(zigzag(at, n), part->values + part->offsets[row], n);
          break;
      }
    }
    ends[row] = (int32_t)(at - out);
  }
  return rows;
}
