#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every check of the house can fail: each meets a tiny bad tree, and the good twin of it."""

import pathlib
import tempfile
import unittest

import check
import count_tests
import docs_commands
from tree import Tree, strip_cpp

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
OPEN = "TO" + "DO"
HOME = "/ho" + "me/someone/"

# check -> (bad files, words of the finding, good files)
CASES = {
    "includes": [
        ({"codec/a.cpp": '#include "apply/b.hpp"\n', "apply/b.hpp": ""}, "codec/ may include only",
         {"apply/a.cpp": '#include "codec/b.hpp"\n', "codec/b.hpp": ""}),
        ({"include/weft/base/a.hpp": '#include "weft/wire/b.hpp"\n', "include/weft/wire/b.hpp": ""},
         "include/weft/base/ may include only",
         {"include/weft/wire/a.hpp": '#include "weft/base/b.hpp"\n', "include/weft/base/b.hpp": ""}),
        ({"transport/a.cpp": '#include "agent/b.hpp"\n', "agent/b.hpp": ""}, "may include only",
         {"agent/a.cpp": '#include "transport/b.hpp"\n', "transport/b.hpp": ""}),
        ({"codec/a.cpp": '#include "codec/gone.hpp"\n'}, "no such header",
         {"codec/a.cpp": '#include "codec/b.hpp"\n', "codec/b.hpp": ""}),
        ({"transport/tree/a.cpp": "#include <rdma/fabric.h>\n"}, "only in transport/fabric/",
         {"transport/fabric/a.cpp": "#include <rdma/fabric.h>\n"}),
        ({"codec/scan/a.cpp": "#include <oneapi/tbb/flow_graph.h>\n"}, "only in codec/flow/",
         {"codec/flow/a.cpp": "#include <oneapi/tbb/flow_graph.h>\n"}),
        ({"codec/a.hpp": "#include <xxhash.h>\n"}, "only in include/weft/wire/digest.hpp",
         {"include/weft/wire/digest.hpp": "#include <xxhash.h>\n"}),
        ({"agent/lib/a.cpp": "#include <CLI/CLI.hpp>\n"}, "only in agent/cli/command_line.cpp",
         {"agent/cli/command_line.cpp": "#include <CLI/CLI.hpp>\n"}),
        ({"transport/relay/a.cpp": '#include "control.pb.h"\n'}, "only in transport/control/",
         {"transport/control/a.cpp": '#include "control.pb.h"\n'}),
        ({"apply/a.cpp": "#include <boost/asio.hpp>\n"}, "without a door",
         {"apply/a.cpp": "#include <sys/mman.h>\n#include <vector>\n"}),
    ],
    "codec_is_pure": [
        ({"codec/a.cpp": "#include <fstream>\n"}, "<fstream> in the codec",
         {"apply/a.cpp": "#include <fstream>\n"}),
        ({"codec/a.cpp": "auto t = std::chrono::steady_clock::now();\n"}, "reads no clock",
         {"codec/a.cpp": "// steady_clock::now() is not for us\n"}),
    ],
    "first_line": [
        ({"codec/a.cpp": "#include <vector>\n"}, "SPDX", {"codec/a.cpp": SPDX}),
        ({"dev": "#!/usr/bin/env bash\nset -e\n"}, "SPDX",
         {"dev": "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n"}),
    ],
    "file_length": [({"codec/a.cpp": "\n" * 601}, "at most 600", {"codec/a.cpp": "\n" * 600})],
    "pragma_once": [({"codec/a.hpp": SPDX}, "#pragma once", {"codec/a.hpp": SPDX + "#pragma once\n"})],
    "threads_are_stated": [
        ({"apply/a.hpp": "// Opens doors.\nclass Door {\n};\n"}, "class Door",
         {"apply/a.hpp": "// Opens doors.\n// Threads: any.\nclass Door {\n};\nclass Later;\n"}),
        ({"apply/a.hpp": "template <typename T>\nclass [[nodiscard]] Door final : public Wall {\n};\n"},
         "class Door",
         {"apply/a.hpp": "// Threads: one at a time.\ntemplate <typename T>\nclass [[nodiscard]] Door {\n};\n"}),
        ({"apply/a.hpp": "// Threads: any.\n\nclass Door\n    : public Wall {\n};\n"}, "class Door",
         {"apply/a.hpp": "enum class Side { kLeft };\n// class Door {\n"}),
    ],
    "no_printing": [
        ({"apply/a.cpp": "std::cout << 1;\n"}, "never print", {"agent/a.cpp": "std::cout << 1;\n"}),
        ({"apply/a.cpp": '  printf("x");\n'}, "never print", {"apply/a.cpp": '  snprintf(b, 2, "printf(");\n'}),
    ],
    "no_ending": [
        ({"codec/a.cpp": "if (bad) std::abort();\n"}, "never end", {"codec/a.cpp": "refit.abort();\n"}),
        ({"codec/a.cpp": "if (bad) exit(1);\n"}, "never end", {"agent/cli/main.cpp": "exit(1);\n"}),
    ],
    "no_sleeping": [
        ({"tests/a_test.cpp": "std::this_thread::sleep_for(1s);\n"}, "deadline",
         {"tests/a_test.cpp": "gate.wait_for(1s); // not sleep_for\n"}),
        ({"apply/a.cpp": "  usleep(10);\n"}, "deadline", {"apply/a.cpp": "  sleeper.sleep(10);\n"}),
    ],
    "no_wall_clock": [
        ({"apply/a.cpp": "const auto now = std::chrono::system_clock::now();\n"}, "may jump",
         {"apply/a.cpp": "const auto now = std::chrono::steady_clock::now();\n"}),
        ({"agent/lib/a.cpp": "const auto now = std::time(nullptr);\n"}, "may jump", {"agent/cli/open_log.cpp": "system_clock::now();\n"}),
        ({"agent/lib/a.cpp": "const auto now = time(nullptr);\n"}, "may jump", {"agent/lib/a.cpp": "file.time(0);\n"}),
    ],
    "no_hidden_gaps": [
        ({"tests/a_test.cpp": "TEST(A, DISABLED_B) {\n}\n"}, "runs or is deleted",
         {"tests/a_test.cpp": "TEST(A, B) {\n}\n"}),
        ({"tests/a_test.cpp": "  GTEST_SKIP();\n"}, "runs or is deleted", {"tests/a_test.cpp": ""}),
    ],
    "open_work": [
        ({"codec/a.cpp": f"// {OPEN}: later\n"}, "(#issue)", {"codec/a.cpp": f"// {OPEN}(#12): later\n"}),
        ({"README.md": "FIX" + "ME\n"}, "(#issue)", {"README.md": "fix me\n"}),
    ],
    "no_machine_paths": [
        ({"docs/a.md": f"see {HOME}x\n"}, "one machine", {"docs/a.md": "see https://x.org/home/page/\n"}),
    ],
    "file_names": [
        ({"codec/string_utils.hpp": ""}, "says nothing", {"codec/byte_run.hpp": ""}),
        ({"codec/ByteRun.hpp": ""}, "snake_case", {"codec/byte_run.cpp": ""}),
        ({"codec/common/a.hpp": ""}, "says nothing", {"codec/frame/a.hpp": ""}),
    ],
    "names": [
        ({"apply/a.hpp": "class SessionManager {\n};\n"}, "vague noun", {"apply/a.hpp": "class Session {\n};\n"}),
        ({"apply/a.cpp": "int src_offset = 0;\n"}, "source or target", {"apply/a.cpp": "int source_offset = 0;\n"}),
    ],
    "decision_records": [
        ({"docs/adr/0001-a.md": "# 0001: A\n", "docs/adr/README.md": "[0001](0001-a.md)\n"},
         "no section Status, Context",
         {"docs/adr/0001-a.md": "# 0001: A\n" + "".join(
             f"## {s}\n" for s in ("Status", "Context", "Decision", "Rejected", "Consequences")),
          "docs/adr/README.md": "[0001](0001-a.md)\n"}),
        ({"docs/adr/0001-a.md": "# 0001: A\n", "docs/adr/0001-b.md": "# 0001: B\n"}, "is taken by", {}),
        ({"docs/adr/0001-a.md": "# 0001: A\n"}, "not listed", {}),
        ({"docs/adr/0001-a.md": "# A\n"}, "the title must begin", {}),
        ({"docs/adr/first.md": "# A\n"}, "is named docs/adr", {}),
    ],
    "changelog": [
        ({}, "no changelog", {"CHANGELOG.md": "## Unreleased\n### Added\n### Changed\n### Fixed\n### Wire\n"}),
        ({"CHANGELOG.md": "## Unreleased\n### Added\n## 1\n### Changed\n### Fixed\n### Wire\n"}, "sections", {
            "CHANGELOG.md": "## 2\n### Added\n### Changed\n### Fixed\n### Wire\n## 1\n### Added\n"}),
    ],
    "errors_document": [
        ({"include/weft/base/error.hpp": "  kNoSpace = 10,\n", "docs/errors.md": "| `no_space` | 21 |\n"},
         "exit code 20",
         {"include/weft/base/error.hpp": "  kNoSpace = 10,\n", "docs/errors.md": "| `no_space` | 20 |\n"}),
        ({"include/weft/base/error.hpp": "  kNoSpace = 10,\n", "docs/errors.md": ""}, "not in the table", {}),
    ],
    "formats": [
        ({"docs/formats/a.md": "# A\nLittle-endian.\n## Versions\n"}, "a worked example",
         {"docs/formats/a.md": "# A\nLittle-endian.\n## Versions\n## Worked example\n"}),
    ],
    "links": [
        ({"README.md": "[a](docs/gone.md)\n"}, "does not exist",
         {"README.md": "[a](docs/a.md#part) [b](https://x.org)\n", "docs/a.md": ""}),
    ],
    "dev_commands": [
        ({"dev": "  test) run ;;\n", "README.md": "run `./dev tset`\n"}, "no such command",
         {"dev": "  test) run ;;\n", "README.md": "run `./dev test` or ./dev help\n"}),
    ],
    "format": [
        ({"codec/a.cpp": "int  a ;\n", ".clang-format": "BasedOnStyle: Google\n"}, "not formatted",
         {"codec/a.cpp": "int a;\n", ".clang-format": "BasedOnStyle: Google\n"}),
    ],
    "shell": [
        ({"dev": "#!/bin/bash\nrm $1\n"}, "SC2086", {"dev": '#!/bin/bash\nrm "$1"\n'}),
    ],
}  # fmt: skip


def findings_in(files, name):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            place = pathlib.Path(folder) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        chosen = next(c for c in check.CHECKS if check.name_of(c) == name)
        return [str(finding) for finding in chosen(Tree(folder))]


class ChecksCanFail(unittest.TestCase):
    def test_every_check_has_a_bad_tree(self):
        self.assertEqual({check.name_of(c) for c in check.CHECKS}, set(CASES))

    def test_bad_trees_are_found(self):
        for name, cases in CASES.items():
            for bad, words, _ in cases:
                with self.subTest(check=name, files=list(bad)):
                    self.assertIn(words, "\n".join(findings_in(bad, name)))

    def test_good_trees_pass(self):
        for name, cases in CASES.items():
            for _, _, good in cases:
                if good:
                    with self.subTest(check=name, files=list(good)):
                        self.assertEqual(findings_in(good, name), [])

    def test_program_says_where_and_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.hpp").write_text("")
            self.assertEqual(check.main(["--root", folder, "--only", "pragma_once"]), 1)
            self.assertEqual(check.main(["--root", folder, "--only", "shell"]), 0)


class StripCpp(unittest.TestCase):
    def test_keeps_lines_and_code(self):
        text = 'a /* x\ny */ b; // c\nR"(std::cout\n)" "q\\"" \'"\' 1\'000 d\n'
        stripped = strip_cpp(text)
        self.assertEqual(stripped.count("\n"), text.count("\n"))
        self.assertEqual(stripped.split(), ["a", "b;", "1'000", "d"])


class CountTests(unittest.TestCase):
    def test_counts_cases_of_programs_and_programs_without_cases(self):
        report = """<testsuite><testcase name="a" status="run"><system-out>
            [  PASSED  ] 12 tests.</system-out></testcase>
            <testcase name="b" status="fail"><system-out>[  PASSED  ] 3 tests.
            [  FAILED  ] 2 tests, listed below:</system-out></testcase>
            <testcase name="c" status="fail"><system-out>Segmentation fault</system-out></testcase>
            <testcase name="d" status="run"><system-out/></testcase>
            <testcase name="e" status="run"><system-out>Ran 7 tests in 8.8s\n\nOK</system-out></testcase>
            <testcase name="f" status="fail"><system-out>Ran 5 tests in 8.8s

FAILED (failures=1, errors=1)</system-out></testcase></testsuite>"""
        self.assertEqual(count_tests.count(report), (12 + 3 + 0 + 1 + 7 + 3, 2 + 1 + 0 + 0 + 0 + 2))


class DocsCommands(unittest.TestCase):
    TEXT = "a\n```sh run\nx=1\necho $x\n```\n```sh\nnot run\n```\n```sh run\nfalse\n```\n"

    def test_finds_only_blocks_marked_to_run(self):
        blocks = docs_commands.runnable_blocks(self.TEXT)
        self.assertEqual(blocks, [(3, "x=1\necho $x\n"), (10, "false\n")])

    def test_fails_when_a_block_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(self.TEXT)
            self.assertEqual(docs_commands.run_document(page, folder), ["page.md:10: exit code 1"])


if __name__ == "__main__":
    unittest.main()
