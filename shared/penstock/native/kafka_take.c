/* Messages of librdkafka to columns, without an object for each. Its functions come as pointers, so that the kernels are
   built without it. */
#include "kernels.h"

enum { VALUE, KEY, HEADERS };

/* rd_kafka_message_t, a public struct of librdkafka. */
typedef struct {
  int32_t err;
  void *topic;
  int32_t partition;
  void *payload;
  size_t length;
  void *key;
  size_t key_length;
  int64_t offset;
  void *of_client;
} Message;

typedef struct {
  void (*destroy)(Message *);
  int64_t (*timestamp)(const Message *, int32_t *);
  int32_t (*leader_epoch)(const Message *);
  int32_t (*headers)(const Message *, void **);
  int32_t (*header)(const void *, size_t, const char **, const void **, size_t *);
} Client;

/* What is told of each message; a length of -1: there is no such part. */
typedef struct {
  int32_t *error, *partition, *time_kind, *leader_epoch;
  int64_t *topic, *offset, *time_ms, *value, *key, *headers;
} Told;

static int64_t put(uint8_t *to, int64_t at, const void *part, size_t length, int there) {
  int32_t told = there ? (int32_t)length : -1;
  if (to) memcpy(to + at, &told, 4);
  at += 4;
  if (!there) return at;
  if (to) memcpy(to + at, part, length);
  return at + (int64_t)length;
}

/* Name and value of each header, each behind its length. Gives the bytes, which it writes unless to is NULL. */
static int64_t headers_of(const Client *client, const Message *message, uint8_t *to) {
  void *found;
  const char *name;
  const void *value;
  size_t length;
  int64_t at = 0;
  if (client->headers(message, &found)) return 0;
  for (size_t i = 0; !client->header(found, i, &name, &value, &length); i++) {
    at = put(to, at, name, strlen(name), 1);
    at = put(to, at, value, length, value != NULL);
  }
  return at;
}

void penstock_kafka_tell(const Client *client, Message **messages, int64_t count, const Told *told) {
  for (int64_t i = 0; i < count; i++) {
    const Message *m = messages[i];
    told->error[i] = m->err;
    told->partition[i] = m->partition;
    told->topic[i] = (int64_t)(intptr_t)m->topic;
    told->offset[i] = m->offset;
    told->time_ms[i] = client->timestamp(m, &told->time_kind[i]);
    told->leader_epoch[i] = client->leader_epoch(m);
    told->value[i] = m->payload ? (int64_t)m->length : -1;
    told->key[i] = m->key ? (int64_t)m->key_length : -1;
    told->headers[i] = m->err ? 0 : headers_of(client, m, NULL);
  }
}

/* Copies one part of the messages with these numbers behind one another; the caller has made data as long as all of them. */
void penstock_kafka_copy(const Client *client, Message **messages, const int64_t *numbers, int64_t count, int32_t part,
                         uint8_t *data) {
  for (int64_t i = 0; i < count; i++) {
    const Message *m = messages[numbers[i]];
    if (part == HEADERS) {
      data += m->err ? 0 : headers_of(client, m, data);
      continue;
    }
    const void *from = part == KEY ? m->key : m->payload;
    size_t length = part == KEY ? m->key_length : m->length;
    if (!from) continue;
    memcpy(data, from, length);
    data += length;
  }
}

void penstock_kafka_release(const Client *client, Message **messages, int64_t count) {
  for (int64_t i = 0; i < count; i++) client->destroy(messages[i]);
}
