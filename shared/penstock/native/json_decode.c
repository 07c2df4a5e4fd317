/* JSON records to columns. A record that this code is not sure of is left to the caller ("unsure"): escapes, control
   characters, numbers that do not fit, values of another kind, keys that come twice. What it takes, it takes exactly.
   All texts are valid UTF-8; the caller has checked. */
#include "kernels.h"

enum { INT, BOOL, FLOAT, DECIMAL, TEXT, TIMESTAMP, TIMESTAMP_LTZ, DATE, OBJECT };
enum { NULLABLE = 1, OPTIONAL = 2 };

typedef struct {
  int32_t name_at, name_len; /* in the names */
  int32_t kind, out;         /* where its values go */
  int32_t first, count;      /* OBJECT: its fields */
  int32_t flags, bits;       /* INT: of the type */
} Field;

typedef struct {
  const uint8_t *names;
  const Field *fields;
  Out *outs;
  int64_t row;
  const uint8_t *base;
} Job;

#define DEPTH 64

static inline const uint8_t *space(const uint8_t *s, const uint8_t *e) {
  while (s < e && (*s == ' ' || *s == '\n' || *s == '\t' || *s == '\r')) s++;
  return s;
}

/* From behind an opening quote to the closing one; NULL for an escape, a control character or no end. */
static inline const uint8_t *string_end(const uint8_t *s, const uint8_t *e) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), low = _mm_set1_epi8(0x1f);
  while (e - s >= 16) {
    __m128i v = _mm_loadu_si128((const __m128i *)s);
    __m128i odd = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
                               _mm_cmpeq_epi8(_mm_min_epu8(v, low), v));
    int mask = _mm_movemask_epi8(odd);
    if (mask) {
      s += __builtin_ctz(mask);
      return *s == '"' ? s : NULL;
    }
    s += 16;
  }
#endif
  for (; s < e; s++) {
    if (*s == '"') return s;
    if (*s == '\\' || *s < 0x20) return NULL;
  }
  return NULL;
}

static inline int digit(const uint8_t *s, const uint8_t *e) { return s < e && *s >= '0' && *s <= '9'; }

/* The end of a number of JSON's grammar, or NULL. *whole: without fraction and exponent; *exponent: with one. */
static const uint8_t *number_end(const uint8_t *s, const uint8_t *e, int *whole, int *exponent) {
  *whole = 1;
  *exponent = 0;
  if (s < e && *s == '-') s++;
  if (!digit(s, e)) return NULL;
  if (*s == '0')
    s++;
  else
    while (digit(s, e)) s++;
  if (s < e && *s == '.') {
    *whole = 0;
    if (!digit(++s, e)) return NULL;
    while (digit(s, e)) s++;
  }
  if (s < e && (*s == 'e' || *s == 'E')) {
    *whole = 0;
    *exponent = 1;
    s++;
    if (s < e && (*s == '+' || *s == '-')) s++;
    if (!digit(s, e)) return NULL;
    const uint8_t *from = s;
    while (digit(s, e)) s++;
    if (s - from > 2) return NULL; /* near the ends of a double: not for us */
  }
  return s;
}

static inline int word(const uint8_t *s, const uint8_t *e, const char *w, int n) {
  return e - s >= n && memcmp(s, w, n) == 0;
}

static const uint8_t *skip(const uint8_t *s, const uint8_t *e, int depth) {
  int whole, exponent;
  if (s >= e || depth > DEPTH) return NULL;
  switch (*s) {
    case '"':
      s = string_end(s + 1, e);
      return s ? s + 1 : NULL;
    case 't':
      return word(s, e, "true", 4) ? s + 4 : NULL;
    case 'f':
      return word(s, e, "false", 5) ? s + 5 : NULL;
    case 'n':
      return word(s, e, "null", 4) ? s + 4 : NULL;
    case '[':
    case '{': {
      int object = *s == '{';
      uint8_t close = object ? '}' : ']';
      s = space(s + 1, e);
      if (s < e && *s == close) return s + 1;
      for (;;) {
        if (object) {
          if (s >= e || *s != '"' || !(s = string_end(s + 1, e))) return NULL;
          s = space(s + 1, e);
          if (s >= e || *s != ':') return NULL;
          s = space(s + 1, e);
        }
        if (!(s = skip(s, e, depth + 1))) return NULL;
        s = space(s, e);
        if (s >= e) return NULL;
        if (*s == close) return s + 1;
        if (*s != ',') return NULL;
        s = space(s + 1, e);
      }
    }
  }
  return number_end(s, e, &whole, &exponent);
}

static inline int two(const uint8_t *s, int *out) {
  if (s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9') return 0;
  *out = (s[0] - '0') * 10 + s[1] - '0';
  return 1;
}

/* Days since 1970 of "YYYY-MM-DD", years 1 to 9999. */
static int days(const uint8_t *s, int64_t *out) {
  static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int high, low, month, day;
  if (!two(s, &high) || !two(s + 2, &low) || s[4] != '-' || !two(s + 5, &month) || s[7] != '-' || !two(s + 8, &day))
    return 0;
  int year = high * 100 + low;
  if (year < 1 || month < 1 || month > 12 || day < 1) return 0;
  int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  if (day > lengths[month - 1] + (leap && month == 2)) return 0;
  int64_t y = year - (month <= 2), era = y / 400, of_era = y - era * 400;
  int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  *out = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
  return 1;
}

/* Microseconds since 1970 of "YYYY-MM-DD HH:MM:SS[.f]", or with T; up to six digits of a second. */
static int micros(const uint8_t *s, const uint8_t *e, int zoned, int64_t *out) {
  int64_t day;
  int hour, minute, second;
  if (zoned) {
    if (e - s < 20 || e[-1] != 'Z') return 0;
    e--;
  }
  if (e - s < 19 || !days(s, &day) || (s[10] != ' ' && s[10] != 'T')) return 0;
  if (!two(s + 11, &hour) || s[13] != ':' || !two(s + 14, &minute) || s[16] != ':' || !two(s + 17, &second)) return 0;
  if (hour > 23 || minute > 59 || second > 59) return 0;
  int64_t fraction = 0;
  s += 19;
  if (s < e) {
    int n = (int)(e - s) - 1;
    if (*s != '.' || n < 1 || n > 6) return 0;
    for (int i = 1; i <= 6; i++) {
      if (i <= n && (s[i] < '0' || s[i] > '9')) return 0;
      fraction = fraction * 10 + (i <= n ? s[i] - '0' : 0);
    }
  }
  *out = ((day * 24 + hour) * 60 + minute) * 60000000 + second * 1000000LL + fraction;
  return 1;
}

static int integer(const uint8_t *s, const uint8_t *e, int bits, int64_t *out) {
  int minus = *s == '-';
  s += minus;
  if (e - s > 18 || (minus && *s == '0')) return 0;
  int64_t value = 0;
  for (; s < e; s++) value = value * 10 + (*s - '0');
  if (minus) value = -value;
  if (bits < 64 && (value < -(1LL << (bits - 1)) || value >= (1LL << (bits - 1)))) return 0;
  *out = value;
  return 1;
}

static const uint8_t *object(Job *job, const uint8_t *s, const uint8_t *e, int first, int count, int depth);

static const uint8_t *value(Job *job, const Field *field, const uint8_t *s, const uint8_t *e, int depth) {
  Out *out = &job->outs[field->out];
  int64_t row = job->row;
  int whole, exponent;
  const uint8_t *end;
  if (s >= e) return NULL;
  if (*s == 'n') return word(s, e, "null", 4) && (field->flags & NULLABLE) ? s + 4 : NULL;
  switch (field->kind) {
    case OBJECT:
      if (*s != '{') return NULL;
      end = object(job, s, e, field->first, field->count, depth + 1);
      break;
    case BOOL:
      if (word(s, e, "true", 4))
        out->number[row] = 1, end = s + 4;
      else if (word(s, e, "false", 5))
        out->number[row] = 0, end = s + 5;
      else
        return NULL;
      break;
    case INT:
      end = number_end(s, e, &whole, &exponent);
      if (!end || !whole || !integer(s, end, field->bits, &out->number[row])) return NULL;
      break;
    case FLOAT:
    case DECIMAL:
      end = number_end(s, e, &whole, &exponent);
      if (!end || (*s == '-' && s[1] == '0') || (field->kind == DECIMAL && (exponent || end - s > 36))) return NULL;
      out->start[row] = (int32_t)(s - job->base), out->end[row] = (int32_t)(end - job->base);
      break;
    default:
      if (*s != '"' || !(end = string_end(s + 1, e))) return NULL;
      s++;
      if (field->kind == TEXT)
        out->start[row] = (int32_t)(s - job->base), out->end[row] = (int32_t)(end - job->base);
      else if (field->kind == DATE) {
        if (end - s != 10 || !days(s, &out->number[row])) return NULL;
      } else if (!micros(s, end, field->kind == TIMESTAMP_LTZ, &out->number[row]))
        return NULL;
      end++;
  }
  out->valid[row] = 1;
  return end;
}

static const uint8_t *object(Job *job, const uint8_t *s, const uint8_t *e, int first, int count, int depth) {
  uint64_t seen = 0;
  int expected = 0;
  if (depth > DEPTH || s >= e || *s != '{') return NULL;
  s = space(s + 1, e);
  if (s < e && *s == '}')
    s++;
  else
    for (;;) {
      if (s >= e || *s != '"') return NULL;
      const uint8_t *name = s + 1, *end = string_end(name, e);
      if (!end) return NULL;
      int length = (int)(end - name), found = -1;
      for (int i = 0; i < count; i++) {
        int at = expected + i < count ? expected + i : expected + i - count;
        const Field *f = &job->fields[first + at];
        if (f->name_len == length && memcmp(job->names + f->name_at, name, length) == 0) {
          found = at;
          break;
        }
      }
      s = space(end + 1, e);
      if (s >= e || *s != ':') return NULL;
      s = space(s + 1, e);
      if (found < 0)
        s = skip(s, e, depth);
      else {
        if (seen >> found & 1) return NULL;
        seen |= 1ULL << found;
        expected = found + 1 < count ? found + 1 : 0;
        s = value(job, &job->fields[first + found], s, e, depth);
      }
      if (!s) return NULL;
      s = space(s, e);
      if (s >= e) return NULL;
      if (*s == '}') {
        s++;
        break;
      }
      if (*s != ',') return NULL;
      s = space(s + 1, e);
    }
  for (int i = 0; i < count; i++)
    if (!(seen >> i & 1)) {
      int flags = job->fields[first + i].flags;
      if (!(flags & OPTIONAL) || !(flags & NULLABLE)) return NULL;
    }
  return s;
}

/* Record i is text[start[i]:end[i]]. sure[i] becomes 1 where its values are in outs, whose arrays the caller has set to
   zero. Gives the number of sure records. */
int64_t penstock_json_decode(const uint8_t *text, const int64_t *start, const int64_t *end, int64_t count,
                             const uint8_t *names, const Field *fields, int32_t fields_of_record, Out *outs,
                             uint8_t *sure) {
  Job job = {names, fields, outs, 0, text};
  int64_t taken = 0;
  for (int64_t row = 0; row < count; row++) {
    const uint8_t *e = text + end[row], *s = space(text + start[row], e);
    job.row = row;
    s = object(&job, s, e, 0, fields_of_record, 0);
    if (s && space(s, e) == e) sure[row] = 1, taken++;
  }
  return taken;
}
