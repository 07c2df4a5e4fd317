/* Avro binary records to columns. A record that is not exactly one of its schema, in the shortest form of each number, is
   left to the caller ("unsure"), as is one with a value that does not fit its column. */
#include "kernels.h"

enum { NUL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING, FIXED, ENUM, UNION, RECORD, ARRAY, MAP, DECIMAL };

typedef struct {
  int32_t kind, out;    /* out: where its values go; -1: nobody wants them */
  int32_t first, count; /* its children: branches, fields, items; ENUM: count = symbols */
  int32_t size, bits;   /* FIXED, DECIMAL: bytes, -1 = told by a length. INT, LONG: bits of the column */
  int64_t limit;        /* DECIMAL: values lie between -limit and limit, these excluded */
} Node;

typedef struct {
  const Node *nodes;
  const int32_t *children;
  Out *outs;
  int64_t row;
  const uint8_t *base;
} Job;

/* Moves on over a zigzag number in its shortest form. */
static inline const uint8_t *number(const uint8_t *s, const uint8_t *e, int64_t *out) {
  uint64_t value = 0;
  for (int shift = 0; s < e; shift += 7) {
    uint8_t byte = *s++;
    if (shift == 63 && byte > 1) return NULL;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      if (byte == 0 && shift > 0) return NULL;
      *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
      return s;
    }
  }
  return NULL;
}

static int utf8(const uint8_t *s, const uint8_t *e) {
  while (s < e) {
    if (e - s >= 8) {
      uint64_t word;
      memcpy(&word, s, 8);
      if (!(word & 0x8080808080808080ULL)) {
        s += 8;
        continue;
      }
    }
    uint8_t c = *s++;
    if (c < 0x80) continue;
    int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c < 0xc2 || c > 0xf4 || e - s < more) return 0;
    if ((c == 0xe0 && *s < 0xa0) || (c == 0xed && *s > 0x9f) || (c == 0xf0 && *s < 0x90) || (c == 0xf4 && *s > 0x8f))
      return 0;
    for (; more > 0; more--, s++)
      if ((*s & 0xc0) != 0x80) return 0;
  }
  return 1;
}

static const uint8_t *bytes(const uint8_t *s, const uint8_t *e, const uint8_t **from) {
  int64_t length;
  if (!(s = number(s, e, &length)) || length < 0 || length > e - s) return NULL;
  *from = s;
  return s + length;
}

static int decimal(const uint8_t *s, const uint8_t *e, int64_t limit, int64_t *out) {
  if (s == e || e - s > 8) return 0;
  uint64_t value = *s & 0x80 ? ~0ULL : 0;
  for (; s < e; s++) value = value << 8 | *s;
  *out = (int64_t)value;
  return *out > -limit && *out < limit;
}

static const uint8_t *value(Job *job, int32_t at, const uint8_t *s, const uint8_t *e) {
  const Node *node = &job->nodes[at];
  Out *out = node->out < 0 ? NULL : &job->outs[node->out];
  const uint8_t *from;
  int64_t n = 0;
  switch (node->kind) {
    case NUL:
      return s;
    case BOOLEAN:
      if (s >= e || *s > 1) return NULL;
      n = *s++;
      break;
    case INT:
    case LONG:
    case ENUM:
      if (!(s = number(s, e, &n))) return NULL;
      if (node->kind == INT && (n < INT32_MIN || n > INT32_MAX)) return NULL;
      if (node->kind == ENUM && (n < 0 || n >= node->count)) return NULL;
      if (node->kind != ENUM && node->bits < 64 && (n < -(1LL << (node->bits - 1)) || n >= 1LL << (node->bits - 1)))
        return NULL;
      break;
    case FLOAT: {
      float f;
      if (e - s < 4) return NULL;
      memcpy(&f, s, 4);
      double d = f;
      memcpy(&n, &d, 8);
      s += 4;
      break;
    }
    case DOUBLE:
      if (e - s < 8) return NULL;
      memcpy(&n, s, 8);
      s += 8;
      break;
    case BYTES:
    case STRING:
      if (!(s = bytes(s, e, &from)) || (node->kind == STRING && !utf8(from, s))) return NULL;
      if (out) {
        out->start[job->row] = (int32_t)(from - job->base), out->end[job->row] = (int32_t)(s - job->base);
        out->valid[job->row] = 1;
      }
      return s;
    case FIXED:
      if (e - s < node->size) return NULL;
      if (out) {
        out->start[job->row] = (int32_t)(s - job->base), out->end[job->row] = (int32_t)(s - job->base) + node->size;
        out->valid[job->row] = 1;
      }
      return s + node->size;
    case DECIMAL:
      from = s;
      if (node->size < 0)
        s = bytes(s, e, &from);
      else
        s = e - s < node->size ? NULL : s + node->size;
      if (!s || (out && !decimal(from, s, node->limit, &n))) return NULL;
      break;
    case UNION:
      if (!(s = number(s, e, &n)) || n < 0 || n >= node->count) return NULL;
      return value(job, job->children[node->first + n], s, e);
    case RECORD:
      for (int32_t i = 0; i < node->count; i++)
        if (!(s = value(job, job->children[node->first + i], s, e))) return NULL;
      if (out) out->valid[job->row] = 1;
      return s;
    default: /* ARRAY, MAP: never wanted */
      for (;;) {
        const uint8_t *stop = NULL;
        if (!(s = number(s, e, &n))) return NULL;
        if (n == 0) return s;
        if (n < 0) {
          int64_t size;
          if (n == INT64_MIN || !(s = number(s, e, &size)) || size < 0 || size > e - s) return NULL;
          n = -n;
          stop = s + size;
        }
        if (n > e - s) return NULL; /* items of no bytes: not for us */
        for (; n > 0; n--) {
          if (node->kind == MAP && (!(s = bytes(s, e, &from)) || !utf8(from, s))) return NULL;
          if (!(s = value(job, job->children[node->first], s, e))) return NULL;
        }
        if (stop && stop != s) return NULL;
      }
  }
  if (out) {
    out->number[job->row] = n;
    out->valid[job->row] = 1;
  }
  return s;
}

/* As penstock_json_decode; node 0 is the record. */
int64_t penstock_avro_decode(const uint8_t *text, const int64_t *start, const int64_t *end, int64_t count,
                             const Node *nodes, const int32_t *children, Out *outs, uint8_t *sure) {
  Job job = {nodes, children, outs, 0, text};
  int64_t taken = 0;
  for (int64_t row = 0; row < count; row++) {
    const uint8_t *e = text + end[row], *s = text + start[row];
    job.row = row;
    if (value(&job, 0, s, e) == e) sure[row] = 1, taken++;
  }
  return taken;
}
