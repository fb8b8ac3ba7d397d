/* SPDX-License-Identifier: Apache-2.0
 * Weft for other languages: weft::Publisher and weft::Refit (publisher.hpp), weft::WeightView,
 * WeightLock and WeightFiles (weight_view.hpp, weight_files.hpp), weft::Agent (agent.hpp) as opaque
 * handles.
 *
 * Conventions
 * - Every call that can fail returns a code: 0, or one of docs/errors.md. weft_last_error() gives
 * the text of the calling thread's last failed call.
 * - A handle is closed once, by its own close call; closing NULL does nothing. A refit is closed
 *   before its publisher; a lock may outlive its view.
 * - One thread at a time per publisher and its refit, per view, lock, agent; different ones are
 *   independent. Only weft_publisher_cancel may be called beside another call.
 * - Pointers are borrowed for the call only, those that come back live as their call says. Text is
 *   UTF-8, sizes are bytes, times are milliseconds.
 * - The caller sets struct_bytes to sizeof of the struct it was compiled with: fields are only ever
 *   added at the end, and what it does not know is left out; a report without its size is refused
 * (config). Zero in another field means the default.
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
  const char* baseline_dir; /* the baseline on disk (weft/publisher.hpp); NULL: in memory */
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
  uint64_t skipped_elements; /* of residuals, not converted: their source is the same */
} weft_refit_report;

enum {
  WEFT_SHARD_SAME = 0,   /* the checkpoint tensor's own type */
  WEFT_SHARD_FLOAT32 = 1 /* cast to BF16 or F16, to nearest, ties to even */
};

/* Fills `into` with elements from first_element on. Called from several threads at once. Returns 0,
 * or a code that the put then fails with. */
typedef int (*weft_converter)(void* context, uint64_t first_element, void* into, size_t into_bytes);

/* Elements of a checkpoint tensor that lie in a view (weft/shard_box.hpp). These two never grow. */
typedef struct weft_box_axis {
  uint64_t extent;
  uint64_t source_stride;
  uint64_t target_stride;
} weft_box_axis;
typedef struct weft_box {
  const char* tensor;
  uint64_t source_offset;
  uint64_t target_offset;
  const weft_box_axis* axes;
  uint32_t rank;
} weft_box;

/* Everything that a converter's values depend on (weft/publisher.hpp, ResidualSource). */
typedef struct weft_residual_source {
  size_t struct_bytes;
  const void* const* parts;
  const size_t* part_bytes;
  uint32_t part_count;
  int elementwise; /* 1: value i depends on element i of every part alone */
} weft_residual_source;

int weft_publisher_open(const weft_publisher_options* options, weft_publisher** publisher);
void weft_publisher_close(weft_publisher* publisher);
/* Ends a begin or put that another thread waits in, and a commit that has not sealed: they give
 * busy. Nothing to end: nothing happens, so say it until they return. */
void weft_publisher_cancel(weft_publisher* publisher);
/* Version and root (16 bytes, low half first) of the baseline. */
int weft_publisher_content(const weft_publisher* publisher, uint64_t* version, uint8_t root[16]);

int weft_refit_begin(weft_publisher* publisher, uint64_t version, weft_refit** refit);
int weft_refit_put(weft_refit* refit, const char* name, int shard_type, const void* bytes,
                   size_t byte_count);
/* Elements of this producer's part, wherever they lie in `bytes`. config: one that is another
 * producer's, or was given before; the text names tensor and range. */
int weft_refit_put_shard(weft_refit* refit, const weft_box* boxes, size_t box_count, int shard_type,
                         const void* bytes, size_t byte_count);
int weft_refit_put_residual(weft_refit* refit, const char* name, weft_converter converter,
                            void* context);
/* The same, but nothing is converted where the source is what it was when the committed values were
 * made. `source` may be NULL. */
int weft_refit_put_residual_from(weft_refit* refit, const char* name, weft_converter converter,
                                 void* context, const weft_residual_source* source);
/* `report` may be NULL. The refit stays to be closed. */
int weft_refit_commit(weft_refit* refit, int partial, weft_refit_report* report);
/* Aborts what is not committed. */
void weft_refit_close(weft_refit* refit);

/* --- For a process that uses the weights of a node. No connection to the agent is needed. --- */

typedef struct weft_view weft_view;
typedef struct weft_lock weft_lock;

/* A tensor in the mapped weight files, row-major. Lives until its lock is released. */
typedef struct weft_tensor {
  size_t struct_bytes;
  const char* name;
  const char* dtype; /* as in the safetensors header */
  const void* bytes;
  size_t byte_count;
  const uint64_t* shape;
  uint32_t rank;
  uint32_t element_bytes; /* 1, 2, 4 or 8 */
} weft_tensor;

/* New values of some elements of one tensor: lives during the visitor's call. */
typedef struct weft_change {
  size_t struct_bytes;
  const char* name;
  const char* dtype;
  const uint64_t* offsets; /* flat element indices, ascending, each once */
  const void* values;      /* element_count of them */
  size_t element_count;
  uint32_t element_bytes;
} weft_change;

typedef struct weft_change_summary {
  size_t struct_bytes;
  uint64_t element_count; /* handed out */
  uint32_t refits;        /* that were folded */
  int needs_full;
} weft_change_summary;

/* Returns 0 to go on; anything else ends the call, which still gives 0. */
typedef int (*weft_change_visitor)(void* context, const weft_change* change);

/* `state_dir` may be NULL: what the agent's own file says. busy: no agent has opened them yet. */
int weft_view_open(const char* weights_dir, const char* state_dir, weft_view** view);
void weft_view_close(weft_view* view);
/* Until another version is published than the last one that wait or acquire gave (or was there at
 * open). timeout when none came. `from` and `to` may be NULL. */
int weft_view_wait(weft_view* view, uint64_t timeout_ms, uint64_t* from, uint64_t* to);
/* The right to read one whole version, until released: the agent changes nothing meanwhile. */
int weft_view_acquire(weft_view* view, uint64_t timeout_ms, weft_lock** lock);
/* Every element that differs between two versions, with its value at `to`, from the agent's
 * journals; needs no lock. summary->needs_full is 1 when they don't lead there: nothing was handed
 * out, read the whole files; weft_last_error() says why. The caller sets summary->struct_bytes. */
int weft_view_changes(weft_view* view, uint64_t from, uint64_t to, weft_change_visitor visitor,
                      void* context, weft_change_summary* summary);

/* The folder with the files, until the lock is released. */
const char* weft_lock_path(const weft_lock* lock);
int weft_lock_content(const weft_lock* lock, uint64_t* version, uint8_t root[16]);
/* Tensors in the order of their names; the caller sets tensor->struct_bytes. config: no such one.
 */
int weft_lock_tensor_count(weft_lock* lock, size_t* count);
int weft_lock_tensor_at(weft_lock* lock, size_t index, weft_tensor* tensor);
int weft_lock_tensor(weft_lock* lock, const char* name, weft_tensor* tensor);
void weft_lock_release(weft_lock* lock);

/* --- A node agent inside this process, as `weft agent` runs it. --- */

typedef struct weft_agent weft_agent;

typedef struct weft_agent_options {
  size_t struct_bytes;
  const char* config_file;      /* as for `weft agent --config`, or */
  const char* config_text;      /* its text: one of the two */
  weft_event_callback on_event; /* NULL: none */
  void* event_context;
} weft_agent_options;

/* Texts live until the agent's next status call, or its close. */
typedef struct weft_agent_status {
  size_t struct_bytes;
  const char* agent_id;
  const char* state;          /* as `weft status` shows it */
  const char* weights_path;   /* where readers find the files now */
  uint64_t version;           /* of its weight files */
  uint8_t root[16];           /* low half first */
  uint64_t committed_version; /* the fleet's, as far as it knows */
  int ready;
  int connected;
  int serving;              /* 0: it has stopped, or ended with an error */
  int cause;                /* why it lags or is not ready: a code, or 0 */
  const char* cause_detail; /* "" without a cause */
} weft_agent_status;

/* Serves from here on, on threads of its own. busy: another agent owns its directories. */
int weft_agent_open(const weft_agent_options* options, weft_agent** agent);
int weft_agent_status_now(weft_agent* agent, weft_agent_status* status);
/* timeout: it serves still. */
int weft_agent_wait_ended(weft_agent* agent, uint64_t timeout_ms);
/* Finishes an apply that is under way and leaves the fleet. Gives the error that had ended it
 * before, if any. */
int weft_agent_stop(weft_agent* agent);
/* Stops it first. */
void weft_agent_close(weft_agent* agent);

/* Never NULL; until the calling thread's next failed call. */
const char* weft_last_error(void);
/* The word of docs/errors.md, "ok" for 0, "unknown" for any other number. */
const char* weft_error_name(int code);

#ifdef __cplusplus
}
#endif

#endif
