// SPDX-License-Identifier: Apache-2.0
#include "bench/make_checkpoint.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bench/checkpoint_model.hpp"
#include "weft/base/guarded.hpp"

namespace weft::bench {
namespace {

constexpr std::uint64_t kBytesMin = 64 * kKiB;
constexpr std::uint64_t kBytesPerFile = 256 * kMiB;
constexpr std::uint32_t kFilesMax = 1000;
constexpr std::uint32_t kThreadsMax = 256;
constexpr std::size_t kStepsMax = 100;
constexpr std::uint64_t kTaskElements = 512 * 1024;

Error io_error(const std::string& what, int native) {
  const bool is_full = native == ENOSPC || native == EDQUOT;
  return failure(is_full ? ErrorCode::kNoSpace : ErrorCode::kIoFailed, Stage::kOpen,
                 what + ": " + std::strerror(native), native);
}

// Closes a file descriptor.
// Threads: one at a time; write_at by any.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return io_error("cannot create " + path, errno);
    return OutputFile(fd, path);
  }
  OutputFile(OutputFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return io_error("cannot write " + path_, errno);
      offset += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return ok();
  }

 private:
  OutputFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

// Where a tensor's bytes lie, the same in base and target.
struct TensorPlace {
  std::size_t file = 0;
  std::uint64_t offset = 0;  // from the start of the file
};

struct FileLayout {
  std::string name;
  std::string head;  // the 8 bytes of length and the JSON header
  std::vector<std::size_t> tensors;
};

struct Layout {
  std::vector<FileLayout> files;
  std::vector<TensorPlace> places;
  std::string index;  // empty for a single file
};

std::string five_digits(std::size_t number) {
  std::string text = std::to_string(number);
  return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
}

std::string file_name(std::size_t number, std::size_t count) {
  if (count == 1) return "model.safetensors";
  return "model-" + five_digits(number + 1) + "-of-" + five_digits(count) + ".safetensors";
}

std::string shape_of(const MadeTensor& tensor) {
  if (tensor.is_vector()) return "[" + std::to_string(tensor.column_count) + "]";
  return "[" + std::to_string(tensor.row_count) + "," + std::to_string(tensor.column_count) + "]";
}

void lay_out_file(const std::vector<MadeTensor>& tensors, std::size_t file, Layout& layout) {
  FileLayout& out = layout.files[file];
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t begin = 0;
  for (const std::size_t t : out.tensors) {
    const std::uint64_t end = begin + 2 * tensors[t].element_count();
    json += ",\"" + tensors[t].name + "\":{\"dtype\":\"BF16\",\"shape\":" + shape_of(tensors[t]) +
            ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
    layout.places[t] = {file, begin};
    begin = end;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  std::uint64_t length = json.size();
  for (int i = 0; i < 8; ++i, length >>= 8) out.head += static_cast<char>(length & 0xFF);
  out.head += json;
  for (const std::size_t t : out.tensors) layout.places[t].offset += out.head.size();
}

// Whole tensors in order, a file closed when it has its share of the bytes.
Layout lay_out(const CheckpointModel& model, std::size_t file_count) {
  const std::vector<MadeTensor>& tensors = model.tensors();
  const std::uint64_t total = 2 * model.element_count();
  Layout layout;
  layout.places.resize(tensors.size());
  std::uint64_t before = 0;
  std::size_t file = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const bool has_its_share = before * file_count >= total * (file + 1);
    const bool must_leave_one_each = tensors.size() - t == file_count - file - 1;
    if (!layout.files.empty() && file + 1 < file_count && (has_its_share || must_leave_one_each))
      ++file;
    layout.files.resize(file + 1);
    layout.files[file].tensors.push_back(t);
    before += 2 * tensors[t].element_count();
  }
  std::string map;
  for (std::size_t f = 0; f < layout.files.size(); ++f) {
    layout.files[f].name = file_name(f, layout.files.size());
    lay_out_file(tensors, f, layout);
    for (const std::size_t t : layout.files[f].tensors)
      map += (map.empty() ? "" : ",\n") + std::string("    \"") + tensors[t].name + "\": \"" +
             layout.files[f].name + "\"";
  }
  if (layout.files.size() > 1)
    layout.index = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total) +
                   "\n  },\n  \"weight_map\": {\n" + map + "\n  }\n}\n";
  return layout;
}

Result<std::vector<OutputFile>> create_files(const std::string& directory, const Layout& layout) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return io_error("cannot create " + directory, error.value());
  std::vector<OutputFile> files;
  for (const FileLayout& file : layout.files) {
    WEFT_TRY(OutputFile output, OutputFile::create(directory + "/" + file.name));
    WEFT_TRY_STATUS(output.write_at(0, std::as_bytes(std::span(file.head))));
    files.push_back(std::move(output));
  }
  if (!layout.index.empty()) {
    WEFT_TRY(const OutputFile index,
             OutputFile::create(directory + "/model.safetensors.index.json"));
    WEFT_TRY_STATUS(index.write_at(0, std::as_bytes(std::span(layout.index))));
  }
  return files;
}

struct Task {
  std::size_t tensor = 0;
  std::uint32_t first_row = 0;
  std::uint32_t row_count = 0;
};

std::vector<Task> split(const std::vector<MadeTensor>& tensors) {
  std::vector<Task> tasks;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const auto step = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, kTaskElements / tensors[t].column_count));
    for (std::uint32_t row = 0; row < tensors[t].row_count; row += step)
      tasks.push_back({t, row, std::min(step, tensors[t].row_count - row)});
  }
  return tasks;
}

// The work all threads share: tasks are taken by number, so which thread does one does not matter.
// Threads: any.
class Production {
 public:
  struct Parts {
    const MakeCheckpointOptions& options;
    const CheckpointModel& model;
    const Layout& layout;
    const std::vector<std::vector<OutputFile>>& checkpoints;  // files of each
    std::vector<float> step_sizes;
  };
  explicit Production(Parts parts)
      : parts_(std::move(parts)), tasks_(split(parts_.model.tensors())) {}

  // Changed elements per step.
  Result<std::vector<std::uint64_t>> run(std::uint32_t thread_count) {
    std::vector<std::thread> threads;
    for (std::uint32_t i = 1; i < thread_count; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    return state_.with([](State& state) -> Result<std::vector<std::uint64_t>> {
      if (state.error) return std::move(*state.error);
      return std::move(state.changed_counts);
    });
  }

 private:
  struct State {
    std::vector<std::uint64_t> changed_counts;
    std::uint64_t element_count = 0;
    std::optional<Error> error;
  };

  void work() {
    for (std::size_t number = next_++; number < tasks_.size(); number = next_++) {
      const auto changed = make(tasks_[number]);
      const bool goes_on = state_.with([&](State& state) {
        if (!changed && !state.error) state.error = changed.error();
        if (state.error) return false;
        state.changed_counts.resize(changed->size());
        for (std::size_t i = 0; i < changed->size(); ++i) state.changed_counts[i] += (*changed)[i];
        report_progress(state, tasks_[number]);
        return true;
      });
      if (!goes_on) return;
    }
  }

  void report_progress(State& state, const Task& task) const {
    state.element_count +=
        std::uint64_t{task.row_count} * parts_.model.tensors()[task.tensor].column_count;
    const std::uint64_t bytes_each = 2 * parts_.checkpoints.size();
    if (parts_.options.on_progress)
      parts_.options.on_progress(bytes_each * state.element_count,
                                 bytes_each * parts_.model.element_count());
  }

  // The same rows of every checkpoint, one after the other.
  Result<std::vector<std::uint64_t>> make(const Task& task) const {
    if (parts_.options.stop_requested && parts_.options.stop_requested())
      return failure(ErrorCode::kTimeout, Stage::kOpen, "stopped while writing checkpoints");
    const MadeTensor& tensor = parts_.model.tensors()[task.tensor];
    const std::size_t columns = tensor.column_count;
    std::vector<float> weights(columns * task.row_count);
    std::vector<float> updates(columns);
    std::vector<std::uint16_t> bits(weights.size());
    std::vector<std::uint64_t> changed_counts;
    for (std::uint32_t r = 0; r < task.row_count; ++r)
      CheckpointModel::fill_weights(tensor, task.first_row + r, 0,
                                    std::span(weights).subspan(r * columns, columns));
    std::transform(weights.begin(), weights.end(), bits.begin(), to_bfloat16);
    WEFT_TRY_STATUS(write(task, 0, bits));
    for (std::uint32_t step = 0; step < parts_.step_sizes.size(); ++step) {
      std::uint64_t changed_count = 0;
      for (std::uint32_t r = 0; r < task.row_count; ++r) {
        CheckpointModel::fill_updates(tensor, task.first_row + r, 0, step, updates);
        for (std::size_t c = 0, i = r * columns; c < columns; ++c, ++i) {
          weights[i] -= parts_.step_sizes[step] * updates[c];
          const std::uint16_t new_bits = to_bfloat16(weights[i]);
          changed_count += new_bits != bits[i] ? 1U : 0U;
          bits[i] = new_bits;
        }
      }
      changed_counts.push_back(changed_count);
      WEFT_TRY_STATUS(write(task, step + 1, bits));
    }
    return changed_counts;
  }

  Status write(const Task& task, std::size_t checkpoint,
               const std::vector<std::uint16_t>& bits) const {
    const TensorPlace& place = parts_.layout.places[task.tensor];
    const std::uint64_t first =
        std::uint64_t{task.first_row} * parts_.model.tensors()[task.tensor].column_count;
    return parts_.checkpoints[checkpoint][place.file].write_at(place.offset + 2 * first,
                                                               std::as_bytes(std::span(bits)));
  }

  Parts parts_;
  std::vector<Task> tasks_;
  std::atomic<std::size_t> next_ = 0;
  Guarded<State> state_;
};

std::vector<std::string> directories_of(const MakeCheckpointOptions& options) {
  const std::size_t step_count = options.changed_percents.size();
  if (step_count == 1) return {options.directory + "/base", options.directory + "/target"};
  std::vector<std::string> directories;
  for (std::size_t i = 0; i <= step_count; ++i)
    directories.push_back(options.directory + "/step-" + std::to_string(i));
  return directories;
}

Status check(const MakeCheckpointOptions& options) {
  const auto refuse = [](std::string why) {
    return failure(ErrorCode::kConfig, Stage::kConfig, std::move(why));
  };
  if (options.bytes < kBytesMin) return refuse("bytes must be at least 65536");
  if (options.changed_percents.empty() || options.changed_percents.size() > kStepsMax)
    return refuse("1 to 100 steps");
  for (const double percent : options.changed_percents)
    if (!(percent > 0 && percent < 60))
      return refuse("a changed percentage must be above 0 and below 60");
  if (options.file_count > kFilesMax) return refuse("at most 1000 files");
  if (options.thread_count > kThreadsMax) return refuse("at most 256 threads");
  for (const std::string& directory : directories_of(options)) {
    std::error_code ignored;
    if (std::filesystem::exists(directory, ignored))
      return refuse(directory + " exists; name another directory or remove it");
  }
  return ok();
}

std::uint32_t thread_count_of(const MakeCheckpointOptions& options) {
  if (options.thread_count != 0) return options.thread_count;
  return std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
}

Result<MadeCheckpoint> produce(const MakeCheckpointOptions& options) {
  const CheckpointModel model(options.bytes, options.seed);
  MadeCheckpoint made;
  made.directories = directories_of(options);
  made.tensor_count = model.tensors().size();
  made.element_count = model.element_count();
  made.tensor_bytes = 2 * made.element_count;
  const std::size_t files_wanted = options.file_count != 0
                                       ? options.file_count
                                       : (made.tensor_bytes + kBytesPerFile - 1) / kBytesPerFile;
  const Layout layout = lay_out(model, std::min(files_wanted, model.tensors().size()));
  made.file_count = layout.files.size();
  std::vector<std::vector<OutputFile>> checkpoints;
  for (const std::string& directory : made.directories) {
    WEFT_TRY(checkpoints.emplace_back(), create_files(directory, layout));
  }

  std::vector<double> shares = options.changed_percents;
  for (double& share : shares) share /= 100;
  const std::vector<float> sizes = model.calibrate(shares);
  Production production({options, model, layout, checkpoints, sizes});
  WEFT_TRY(const std::vector<std::uint64_t> changed_counts,
           production.run(thread_count_of(options)));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double percent =
        100.0 * static_cast<double>(changed_counts[i]) / static_cast<double>(made.element_count);
    made.steps.push_back({changed_counts[i], percent, static_cast<double>(sizes[i])});
  }
  return made;
}

}  // namespace

Result<MadeCheckpoint> make_checkpoint(const MakeCheckpointOptions& options) {
  WEFT_TRY_STATUS(check(options));
  Result<MadeCheckpoint> made = produce(options);
  if (!made) {  // check() saw that none of these was there
    std::error_code ignored;
    for (const std::string& directory : directories_of(options))
      std::filesystem::remove_all(directory, ignored);
  }
  return made;
}

}  // namespace weft::bench
