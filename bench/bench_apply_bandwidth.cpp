// SPDX-License-Identifier: Apache-2.0
// What this machine's files can do without any work on them: what verify, diff and apply are
// measured against. Several threads take pieces of 512 KiB in turn, by pread, as weft does.
//   bench_apply_bandwidth read DIR [THREADS]          sums the words of every safetensors file
//   bench_apply_bandwidth compare DIR DIR2 [THREADS]  compares the files of the same name
//   bench_apply_bandwidth rewrite DIR [THREADS]       reads every piece, writes it back, syncs
// Prints the bytes (of one directory) and the wall time.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kPieceBytes = 512 * 1024;

struct Piece {
  int file = -1;
  int other = -1;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_apply_bandwidth: %s\n", why.c_str());
  std::exit(1);
}

int open_file(const std::filesystem::path& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) give_up(path.string() + ": " + std::strerror(errno));
  return file;
}

std::vector<Piece> pieces_of(const std::filesystem::path& directory,
                             const std::filesystem::path& other, int flags) {
  std::vector<Piece> pieces;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") continue;
    Piece piece;
    piece.file = open_file(entry.path(), flags);
    if (!other.empty()) piece.other = open_file(other / entry.path().filename(), flags);
    const std::size_t bytes = entry.file_size();
    for (piece.offset = 0; piece.offset < bytes; piece.offset += kPieceBytes) {
      piece.bytes = std::min(kPieceBytes, bytes - piece.offset);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

void read_piece(int file, const Piece& piece, std::vector<std::byte>& into) {
  if (::pread(file, into.data(), piece.bytes, static_cast<off_t>(piece.offset)) !=
      static_cast<ssize_t>(piece.bytes)) {
    give_up("short read");
  }
}

void write_piece(const Piece& piece, const std::vector<std::byte>& bytes) {
  if (::pwrite(piece.file, bytes.data(), piece.bytes, static_cast<off_t>(piece.offset)) !=
      static_cast<ssize_t>(piece.bytes)) {
    give_up("short write");
  }
}

std::uint64_t sum_of(const std::vector<std::byte>& bytes, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + 8 <= count; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    sum += word;
  }
  return sum;
}

enum class Mode : std::uint8_t { kRead, kCompare, kRewrite };

// Takes pieces until none is left. Threads: any, at once.
class Run {
 public:
  Run(Mode mode, std::vector<Piece> pieces) : mode_(mode), pieces_(std::move(pieces)) {}

  void work() {
    std::vector<std::byte> bytes(kPieceBytes);
    std::vector<std::byte> others(kPieceBytes);
    for (std::size_t i = next_++; i < pieces_.size(); i = next_++) one(pieces_[i], bytes, others);
  }
  void sync() const {
    int synced = -1;
    for (const Piece& piece : pieces_) {
      if (piece.file == synced) continue;
      synced = piece.file;
      if (::fdatasync(synced) != 0) give_up("fdatasync failed");
    }
  }
  std::size_t bytes() const {
    std::size_t total = 0;
    for (const Piece& piece : pieces_) total += piece.bytes;
    return total;
  }
  std::uint64_t kept() const { return kept_.load(); }

 private:
  void one(const Piece& piece, std::vector<std::byte>& bytes, std::vector<std::byte>& others) {
    read_piece(piece.file, piece, bytes);
    switch (mode_) {
      case Mode::kRead:
        kept_ += sum_of(bytes, piece.bytes);
        break;
      case Mode::kCompare:
        read_piece(piece.other, piece, others);
        kept_ += std::memcmp(bytes.data(), others.data(), piece.bytes) == 0 ? 0U : 1U;
        break;
      case Mode::kRewrite:
        write_piece(piece, bytes);
        break;
    }
  }

  Mode mode_;
  std::vector<Piece> pieces_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> kept_{0};  // so that nothing is optimised away
};

}  // namespace

int main(int count, char** arguments) {
  const std::string name = count > 2 ? arguments[1] : "";
  const Mode mode = name == "compare"   ? Mode::kCompare
                    : name == "rewrite" ? Mode::kRewrite
                                        : Mode::kRead;
  const int threads_place = mode == Mode::kCompare ? 4 : 3;
  if ((mode == Mode::kRead && name != "read") || count < threads_place) {
    give_up("usage: bench_apply_bandwidth read DIR | compare DIR DIR2 | rewrite DIR [THREADS]");
  }
  Run run(mode, pieces_of(arguments[2], mode == Mode::kCompare ? arguments[3] : "",
                          mode == Mode::kRewrite ? O_RDWR : O_RDONLY));
  const unsigned threads = count > threads_place
                               ? static_cast<unsigned>(std::atoi(arguments[threads_place]))
                               : std::thread::hardware_concurrency();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; ++t) others.emplace_back([&run] { run.work(); });
  run.work();
  for (std::thread& thread : others) thread.join();
  if (mode == Mode::kRewrite) run.sync();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("{\"mode\":\"%s\",\"threads\":%u,\"bytes\":%zu,\"seconds\":%.6f,\"kept\":%llu}\n",
              name.c_str(), threads, run.bytes(), seconds.count(),
              static_cast<unsigned long long>(run.kept()));
  return 0;
}
