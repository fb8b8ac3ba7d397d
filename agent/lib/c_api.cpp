// SPDX-License-Identifier: Apache-2.0
#include "weft/c.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/lib/c_call.hpp"
#include "weft/publisher.hpp"

using weft::agent::CallbackSink;
using weft::agent::fail;
using weft::agent::guarded;
using weft::agent::text_of;

// Threads: as c.h says.
struct weft_publisher {
  CallbackSink events;
  std::unique_ptr<weft::Publisher> publisher;
};

// Threads: as c.h says.
struct weft_refit {
  std::unique_ptr<weft::Refit> refit;
};

int weft_publisher_open(const weft_publisher_options* options, weft_publisher** publisher) {
  return guarded([&]() -> int {
    if (options == nullptr || publisher == nullptr)
      return fail("options and publisher must be given");
    weft_publisher_options known = {};
    std::memcpy(&known, options, std::min(options->struct_bytes, sizeof(known)));
    if (known.box_file_count != 0 && known.box_files == nullptr) return fail("box_files is NULL");
    weft::PublisherOptions wanted;
    wanted.coordinator = text_of(known.coordinator);
    wanted.base_dir = text_of(known.base_dir);
    wanted.config_file = text_of(known.config_file);
    if (known.baseline_dir != nullptr) wanted.baseline_dir = known.baseline_dir;
    if (known.base_version != 0) wanted.base_version = weft::Version{known.base_version};
    wanted.producer = known.producer;
    for (std::uint32_t i = 0; i < known.box_file_count; ++i) {
      wanted.box_files.push_back(text_of(known.box_files[i]));
    }
    auto opened = std::make_unique<weft_publisher>(
        weft_publisher{CallbackSink(known.on_event, known.event_context), nullptr});
    auto result = weft::Publisher::open(wanted, opened->events);
    if (!result) return fail(result.error());
    opened->publisher = *std::move(result);
    *publisher = opened.release();
    return 0;
  });
}

void weft_publisher_close(weft_publisher* publisher) {
  guarded([&] {
    delete publisher;
    return 0;
  });
}

void weft_publisher_cancel(weft_publisher* publisher) {
  guarded([&] {
    if (publisher != nullptr) publisher->publisher->cancel();
    return 0;
  });
}

int weft_publisher_content(const weft_publisher* publisher, uint64_t* version, uint8_t root[16]) {
  return guarded([&]() -> int {
    if (publisher == nullptr) return fail("no publisher");
    const weft::Content content = publisher->publisher->content();
    if (version != nullptr) *version = content.version.value;
    if (root != nullptr) {
      std::memcpy(root, &content.root.low, 8);
      std::memcpy(root + 8, &content.root.high, 8);
    }
    return 0;
  });
}

int weft_refit_begin(weft_publisher* publisher, uint64_t version, weft_refit** refit) {
  return guarded([&]() -> int {
    if (publisher == nullptr || refit == nullptr)
      return fail("no publisher, or nowhere to put the refit");
    auto begun = publisher->publisher->begin(weft::Version{version});
    if (!begun) return fail(begun.error());
    *refit = new weft_refit{*std::move(begun)};
    return 0;
  });
}

int weft_refit_put(weft_refit* refit, const char* name, int shard_type, const void* bytes,
                   size_t byte_count) {
  return guarded([&]() -> int {
    if (refit == nullptr || name == nullptr || (bytes == nullptr && byte_count != 0)) {
      return fail("no refit, name or bytes");
    }
    if (shard_type != WEFT_SHARD_SAME && shard_type != WEFT_SHARD_FLOAT32) {
      return fail("shard type " + std::to_string(shard_type));
    }
    const weft::ShardView view{
        shard_type == WEFT_SHARD_SAME ? weft::ShardType::kSame : weft::ShardType::kFloat32,
        {static_cast<const std::byte*>(bytes), byte_count}};
    const weft::Status put = refit->refit->put(name, view);
    return put ? 0 : fail(put.error());
  });
}

int weft_refit_put_shard(weft_refit* refit, const weft_box* boxes, size_t box_count, int shard_type,
                         const void* bytes, size_t byte_count) {
  return guarded([&]() -> int {
    if (refit == nullptr || (boxes == nullptr && box_count != 0) ||
        (bytes == nullptr && byte_count != 0)) {
      return fail("no refit, boxes or bytes");
    }
    if (shard_type != WEFT_SHARD_SAME && shard_type != WEFT_SHARD_FLOAT32) {
      return fail("shard type " + std::to_string(shard_type));
    }
    std::vector<weft::ShardBox> wanted;
    for (std::size_t i = 0; i < box_count; ++i) {
      if (boxes[i].axes == nullptr && boxes[i].rank != 0) return fail("axes is NULL");
      weft::ShardBox box{
          text_of(boxes[i].tensor), boxes[i].source_offset, boxes[i].target_offset, {}};
      for (std::uint32_t a = 0; a < boxes[i].rank; ++a) {
        const weft_box_axis& axis = boxes[i].axes[a];
        box.axes.push_back({axis.extent, axis.source_stride, axis.target_stride});
      }
      wanted.push_back(std::move(box));
    }
    const weft::ShardView view{
        shard_type == WEFT_SHARD_SAME ? weft::ShardType::kSame : weft::ShardType::kFloat32,
        {static_cast<const std::byte*>(bytes), byte_count}};
    const weft::Status put = refit->refit->put_shard(wanted, view);
    return put ? 0 : fail(put.error());
  });
}

int weft_refit_put_residual(weft_refit* refit, const char* name, weft_converter converter,
                            void* context) {
  return weft_refit_put_residual_from(refit, name, converter, context, nullptr);
}

int weft_refit_put_residual_from(weft_refit* refit, const char* name, weft_converter converter,
                                 void* context, const weft_residual_source* source) {
  return guarded([&]() -> int {
    if (refit == nullptr || name == nullptr || converter == nullptr) {
      return fail("no refit, name or converter");
    }
    weft_residual_source known = {};
    if (source != nullptr) {
      std::memcpy(&known, source, std::min(source->struct_bytes, sizeof(known)));
    }
    if (known.part_count != 0 && (known.parts == nullptr || known.part_bytes == nullptr)) {
      return fail("parts or part_bytes is NULL");
    }
    weft::ResidualSource read;
    read.elementwise = known.elementwise != 0;
    for (std::uint32_t i = 0; i < known.part_count; ++i) {
      read.parts.emplace_back(static_cast<const std::byte*>(known.parts[i]), known.part_bytes[i]);
    }
    const std::string tensor = name;
    const auto call = [&](std::uint64_t first, std::span<std::byte> into) -> weft::Status {
      const int code = converter(context, first, into.data(), into.size());
      if (code == 0) return weft::ok();
      const bool listed = code > 0 && code <= weft::kErrorCodeCount;
      return weft::failure(listed ? static_cast<weft::ErrorCode>(code) : weft::ErrorCode::kInternal,
                           weft::Stage::kScan,
                           "the converter of " + tensor + " gave " + std::to_string(code));
    };
    const weft::Status put = refit->refit->put_residual(name, call, read);
    return put ? 0 : fail(put.error());
  });
}

int weft_refit_commit(weft_refit* refit, int partial, weft_refit_report* report) {
  return guarded([&]() -> int {
    if (refit == nullptr) return fail("no refit");
    if (report != nullptr && report->struct_bytes < sizeof(report->struct_bytes)) {
      return fail("report->struct_bytes is not the struct's size");
    }
    const auto done = refit->refit->commit(partial != 0);
    if (!done) return fail(done.error());
    if (report == nullptr) return 0;
    const std::size_t wanted = std::min(report->struct_bytes, sizeof(weft_refit_report));
    weft_refit_report known = {};
    known.struct_bytes = wanted;
    known.version = done->version.value;
    known.changed_elements = done->changed_elements;
    known.total_elements = done->total_elements;
    known.frames = done->frames;
    known.wire_bytes = done->wire_bytes;
    known.baseline_bytes = done->baseline_bytes;
    known.pending_bytes = done->pending_bytes;
    known.put_seconds = done->put_seconds;
    known.commit_seconds = done->commit_seconds;
    known.skipped_elements = done->skipped_elements;
    std::memcpy(report, &known, wanted);
    return 0;
  });
}

void weft_refit_close(weft_refit* refit) {
  guarded([&] {
    delete refit;
    return 0;
  });
}
