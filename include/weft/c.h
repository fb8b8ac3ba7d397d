/* SPDX-License-Identifier: Apache-2.0
 * The publisher for other languages: weft::Publisher and weft::Refit (publisher.hpp) as opaque
 * handles.
 *
 * Conventions
 * - Every call that can fail returns a code: 0, or one of docs/errors.md. weft_last_error() gives
 * the text of the calling thread's last failed call.
 * - A handle is closed once, by its own close call; closing NULL does nothing. A refit is closed
 *   before its publisher.
 * - One thread at a time per publisher and its refit; different publishers are independent.
 * - Pointers are borrowed for the call only. Text is UTF-8, sizes are bytes.
 * - The caller sets struct_bytes to sizeof of the struct it was compiled with: fields are only ever
 *   added at the end, and what it does not know is left out. Zero in a field means the default.
 */
#ifndef WEFT_C_H
#define WEFT_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_publisher weft_publisher;
typedef struct weft_refit weft_refit;

/* Called on any thread; must not block. `text` is one log line: name, then key=value. */
typedef void (*weft_event_callback)(void* context, const char* text);

typedef struct weft_publisher_options {
  size_t struct_bytes;
  const char* coordinator; /* host:port */
  const char* base_dir;
  uint64_t base_version;        /* in a fleet that has no version yet */
  const char* config_file;      /* as for `weft publish --config`; NULL: defaults */
  uint32_t producer;            /* this one's place */
  uint32_t box_file_count;      /* producers; 0: one, whose tensors are the checkpoint's */
  const char* const* box_files; /* the text of each producer's boxes (docs/formats/boxes.md) */
  weft_event_callback on_event; /* NULL: none */
  void* event_context;
} weft_publisher_options;

typedef struct weft_refit_report {
  size_t struct_bytes;
  uint64_t version;
  uint64_t changed_elements;
  uint64_t total_elements;
  uint64_t frames;
  uint64_t wire_bytes;
  uint64_t baseline_bytes;
  uint64_t pending_bytes;
  double put_seconds;
  double commit_seconds;
} weft_refit_report;

enum {
  WEFT_SHARD_SAME = 0,   /* the checkpoint tensor's own type */
  WEFT_SHARD_FLOAT32 = 1 /* cast to BF16 or F16, to nearest, ties to even */
};

/* Fills `into` with elements from first_element on. Called from several threads at once. Returns 0,
 * or a code that the put then fails with. */
typedef int (*weft_converter)(void* context, uint64_t first_element, void* into, size_t into_bytes);

int weft_publisher_open(const weft_publisher_options* options, weft_publisher** publisher);
void weft_publisher_close(weft_publisher* publisher);
/* Version and root (16 bytes, low half first) of the baseline. */
int weft_publisher_content(const weft_publisher* publisher, uint64_t* version, uint8_t root[16]);

int weft_refit_begin(weft_publisher* publisher, uint64_t version, weft_refit** refit);
int weft_refit_put(weft_refit* refit, const char* name, int shard_type, const void* bytes,
                   size_t byte_count);
int weft_refit_put_residual(weft_refit* refit, const char* name, weft_converter converter,
                            void* context);
/* `report` may be NULL. The refit stays to be closed. */
int weft_refit_commit(weft_refit* refit, int partial, weft_refit_report* report);
/* Aborts what is not committed. */
void weft_refit_close(weft_refit* refit);

/* Never NULL; until the calling thread's next failed call. */
const char* weft_last_error(void);
/* The word of docs/errors.md, "ok" for 0, "unknown" for any other number. */
const char* weft_error_name(int code);

#ifdef __cplusplus
}
#endif

#endif
