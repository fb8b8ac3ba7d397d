/* SPDX-License-Identifier: Apache-2.0
 * c_reader WEIGHTS NAME: follows the one tensor NAME through the C API. Says "open VERSION", then
 * for each new version "version N changed C" after it has compared its own copy, kept up to date
 * from changes, with the mapped tensor. Ends with "bye" after the version in $WEFT_LAST.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/c.h"

static unsigned char* copy;
static size_t copy_bytes;
static uint64_t taken;

static int wrong(const char* what, int code) {
  fprintf(stderr, "%s: %d %s: %s\n", what, code, weft_error_name(code), weft_last_error());
  return 1;
}

static int take(void* context, const weft_change* change) {
  size_t i;
  if (strcmp(change->name, (const char*)context) != 0) return 0;
  for (i = 0; i < change->element_count; ++i) {
    memcpy(copy + change->offsets[i] * change->element_bytes,
           (const unsigned char*)change->values + i * change->element_bytes, change->element_bytes);
  }
  taken += change->element_count;
  return 0;
}

static int stop(void* context, const weft_change* change) {
  *(size_t*)context = change->element_count;
  return 7;
}

/* The tensor of a lock; its bytes are those of `copy`, unless there is none yet. */
static int look(weft_lock* lock, const char* name) {
  weft_tensor tensor = {0};
  weft_tensor at = {0};
  size_t count = 0;
  int code;
  tensor.struct_bytes = sizeof(tensor);
  at.struct_bytes = sizeof(at);
  code = weft_lock_tensor(lock, "no.such", &tensor);
  if (strcmp(weft_error_name(code), "config") != 0) return wrong("no such tensor", code);
  code = weft_lock_tensor(lock, name, &tensor);
  if (code != 0) return wrong("tensor", code);
  code = weft_lock_tensor_count(lock, &count);
  if (code != 0 || count != 1) return wrong("count", code);
  code = weft_lock_tensor_at(lock, 0, &at);
  if (code != 0 || at.bytes != tensor.bytes || strcmp(at.name, name) != 0) return wrong("at", code);
  if (weft_lock_tensor_at(lock, 1, &at) == 0) return wrong("beyond the last", 0);
  if (strcmp(tensor.dtype, "BF16") != 0 || tensor.element_bytes != 2 || tensor.rank != 2 ||
      tensor.shape[0] * tensor.shape[1] * 2 != tensor.byte_count) {
    return wrong("what the tensor is", 0);
  }
  if (copy == NULL) {
    copy_bytes = tensor.byte_count;
    copy = malloc(copy_bytes);
    if (copy == NULL) return 1;
    memcpy(copy, tensor.bytes, copy_bytes);
  }
  if (copy_bytes != tensor.byte_count || memcmp(copy, tensor.bytes, copy_bytes) != 0) {
    return wrong("the copy is not the tensor", 0);
  }
  return 0;
}

static int follow(weft_view* view, char* name, uint64_t last) {
  weft_lock* lock = NULL;
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t version = 0;
  weft_change_summary summary = {0};
  size_t first = 0;
  uint8_t root[16];
  int code = weft_view_acquire(view, 30000, &lock);
  summary.struct_bytes = sizeof(summary);
  if (code != 0) return wrong("acquire", code);
  code = weft_lock_content(lock, &version, root);
  if (code != 0 || strlen(weft_lock_path(lock)) == 0) return wrong("content", code);
  if (look(lock, name) != 0) return 1;
  weft_lock_release(lock);
  printf("open %llu\n", (unsigned long long)version);
  fflush(stdout);
  while (version < last) {
    code = weft_view_wait(view, 60000, &from, &to);
    if (code != 0 || from != version) return wrong("wait", code);
    summary.struct_bytes = 0;
    if (weft_view_changes(view, from, to, stop, &first, &summary) == 0) return wrong("no size", 0);
    summary.struct_bytes = sizeof(summary);
    code = weft_view_changes(view, from, to, stop, &first, &summary);
    if (code != 0 || summary.needs_full != 0 || summary.element_count != first)
      return wrong("stopped changes", code);
    taken = 0;
    code = weft_view_changes(view, from, to, take, name, &summary);
    if (code != 0 || summary.refits != 1 || summary.element_count != taken)
      return wrong("changes", code);
    code = weft_view_changes(view, to, to + 9, take, name, &summary);
    if (code != 0 || summary.needs_full != 1) return wrong("a version that is not there", code);
    code = weft_view_acquire(view, 30000, &lock);
    if (code != 0) return wrong("acquire again", code);
    if (look(lock, name) != 0) return 1;
    weft_lock_release(lock);
    version = to;
    printf("version %llu changed %llu\n", (unsigned long long)version, (unsigned long long)taken);
    fflush(stdout);
  }
  return 0;
}

int main(int argc, char** argv) {
  weft_view* view = NULL;
  const char* last = getenv("WEFT_LAST");
  int code;
  if (argc != 3 || last == NULL) return 2;
  code = weft_view_open("/there/is/no/such/directory", NULL, &view);
  if (code == 0 || view != NULL || strlen(weft_last_error()) == 0) return wrong("no weights", code);
  code = weft_view_open(argv[1], NULL, &view);
  if (code != 0) return wrong("open", code);
  code = weft_view_wait(view, 20, NULL, NULL);
  if (strcmp(weft_error_name(code), "timeout") != 0) return wrong("nothing new", code);
  if (follow(view, argv[2], strtoull(last, NULL, 10)) != 0) return 1;
  weft_view_close(view);
  weft_view_close(NULL);
  weft_lock_release(NULL);
  free(copy);
  puts("bye");
  return 0;
}
