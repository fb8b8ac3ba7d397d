# SPDX-License-Identifier: Apache-2.0
"""Who may include whom, and which files are the doors to third-party libraries."""

import re

from tree import Finding

# part (longest prefix wins) -> prefixes of project headers that it may include
TABLE = {
    "include/weft/base/": ("weft/base/",),
    "include/weft/wire/": ("weft/base/", "weft/wire/"),
    "include/": ("weft/",),
    "codec/": ("weft/", "codec/"),
    "transport/": ("weft/", "transport/"),
    "apply/": ("weft/", "codec/", "apply/"),
    "bench/": ("weft/", "codec/", "transport/", "apply/", "agent/lib/", "bench/"),  # programs; agent/cli/ has the harness
    "agent/": ("weft/", "codec/", "transport/", "apply/", "agent/", "bench/"),
    "python/": ("weft/", "codec/", "transport/", "apply/", "agent/", "python/"),
}

# third-party header -> the only places that may include it; tests may include everything
DOORS = (
    (r"tl/", ("include/weft/base/result.hpp",)),
    (r"xxh(ash|_x86dispatch)\.h$", ("include/weft/wire/digest.hpp",)),  # docs/adr/0002, 0013
    (r"(oneapi/|tbb/)", ("codec/flow/",)),
    (r"(zstd|simdjson)", ("codec/", "bench/peers/")),
    (r"rdma/", ("transport/fabric/",)),
    (r"(grpc|google/protobuf|grpcpp|absl/)", ("transport/control/",)),
    (r"liburing", ("apply/store/",)),
    (r"curl/", ("apply/hook/",)),
    (r"hwloc", ("codec/", "transport/", "apply/")),
    (r"CLI/", ("agent/cli/command_line.cpp",)),
    (r"(httplib|toml\+\+|spdlog/|fmt/)", ("agent/",)),
    (r"pybind11/", ("python/",)),
    (r"benchmark/", ("bench/",)),
    (r"(gtest|gmock)/", ()),
)

STANDARD = frozenset(
    """
    algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv
    chrono cinttypes climits cmath compare complex concepts condition_variable coroutine csetjmp
    csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime deque exception execution
    filesystem forward_list fstream functional future initializer_list iomanip ios iosfwd iostream
    istream iterator latch limits list locale map memory memory_resource mutex new numbers numeric
    optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
    source_location span sstream stack stdexcept stop_token streambuf string string_view
    system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
    valarray variant vector version
    assert.h errno.h inttypes.h limits.h math.h stdarg.h stdbool.h stddef.h stdint.h stdio.h
    stdlib.h string.h time.h
    dirent.h dlfcn.h fcntl.h getopt.h ifaddrs.h netdb.h poll.h pthread.h pwd.h grp.h sched.h
    signal.h spawn.h syslog.h termios.h unistd.h cpuid.h immintrin.h
    """.split()
)
SYSTEM_FOLDERS = ("sys/", "linux/", "net/", "netinet/", "arpa/", "asm/")

# The codec never opens a file, socket or clock.
CODEC_FORBIDDEN = re.compile(
    r"^(fstream|filesystem|iostream|cstdio|stdio\.h|fcntl\.h|unistd\.h|dirent\.h|netdb\.h|ctime"
    r"|sys/(socket|mman|stat|file|time)\.h)$"
)
CODEC_CLOCK = re.compile(r"_clock::now|\bMonotonicClock\b|\bclock_gettime\b")

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def _starts(path, prefixes):
    return any(path.startswith(prefix) for prefix in prefixes)


def _part(path):
    fitting = [prefix for prefix in TABLE if path.startswith(prefix)]
    return max(fitting, key=len, default=None)


def _check_third_party(path, number, header):
    for pattern, places in DOORS:
        if re.match(pattern, header):
            if not _starts(path, places):
                only = ", ".join(places) or "tests/"
                yield Finding(path, number, f"<{header}> may be included only in {only}")
            return
    if header not in STANDARD and not header.startswith(SYSTEM_FOLDERS):
        yield Finding(path, number, f"<{header}>: a library without a door (docs/adr/0001)")


def _check_project(tree, path, number, header):
    allowed = TABLE[_part(path)]
    exists = (tree.root / header).is_file() or (tree.root / "include" / header).is_file()
    if header.endswith(".pb.h"):
        if not path.startswith("transport/control/"):
            yield Finding(path, number, f'"{header}" may be included only in transport/control/')
    elif not exists:
        yield Finding(path, number, f'"{header}": no such header from the top folder')
    elif not _starts(header, allowed):
        yield Finding(path, number, f'"{header}": {_part(path)} may include only {", ".join(allowed)}')


def check_includes(tree):
    """Rooms include the floor and what the table says; libraries enter through their doors."""
    for path in tree.cpp():
        if _part(path) is None:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            match = _INCLUDE.match(line)
            if not match:
                continue
            header = match.group(2)
            if match.group(1) == "<":
                yield from _check_third_party(path, number, header)
            else:
                yield from _check_project(tree, path, number, header)


def check_codec_is_pure(tree):
    """The codec opens no file, socket or clock."""
    for path in tree.cpp("codec/"):
        for number, line in enumerate(tree.lines(path), 1):
            match = _INCLUDE.match(line)
            if match and CODEC_FORBIDDEN.match(match.group(2)):
                yield Finding(path, number, f"<{match.group(2)}> in the codec")
        for number, line in enumerate(tree.code(path), 1):
            if CODEC_CLOCK.search(line):
                yield Finding(path, number, "the codec reads no clock; pass the time in")


CHECKS = (check_includes, check_codec_is_pure)
