# SPDX-License-Identifier: Apache-2.0
"""torch tensors, bfloat16 above all, go in and come out without copies; the minimal examples do what they say."""

import gc
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch

import weft
from fleet import Fleet, wait_until
from publisher_model import write_checkpoint

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"


def bits(tensor):
    return tensor.detach().contiguous().view(torch.int16).numpy().view(numpy.uint16)


class OnDevice:
    """What a tensor in a device's memory says of itself."""

    def __dlpack__(self):
        raise AssertionError("asked for memory of a device")

    def __dlpack_device__(self):
        return (2, 0)


class Torch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weft-torch-")
        self.addCleanup(temporary.cleanup)
        self.work = pathlib.Path(temporary.name)
        self.tensors = {"w": torch.randn(200, 300, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16),
                        "v": torch.zeros(31, 5, dtype=torch.bfloat16)}
        self.base = self.export(1)
        self.fleet = Fleet(self.work / "fleet", self.base, agent_count=1)
        self.addCleanup(self.fleet.stop_all)
        self.fleet.start()

    def export(self, version):
        return write_checkpoint(self.work / f"step-{version}", {name: bits(t) for name, t in self.tensors.items()})

    def test_bfloat16_goes_in_and_comes_out_without_copies(self):
        with weft.Publisher(self.fleet.address, self.base) as publisher:
            self.tensors["w"][::7] *= 1.5
            self.tensors["v"] = torch.nn.Parameter(self.tensors["v"] + 1)  # needs gradients
            with publisher.refit(2) as refit:
                refit.put("w", self.tensors["w"])
                refit.put("v", self.tensors["v"])
            with self.assertRaisesRegex(weft.errors.ConfigError, "w is F16, the checkpoint has BF16"):
                with publisher.refit(3) as refit:
                    refit.put("w", self.tensors["w"].to(torch.float16))
            with self.assertRaisesRegex(BufferError, "CPU"):
                with publisher.refit(3) as refit:
                    refit.put("w", OnDevice())
            with self.assertRaisesRegex(BufferError, "not contiguous"):
                with publisher.refit(3) as refit:
                    refit.put("w", self.tensors["w"].t())
            self.fleet.wait_clean([0], 2)
            self.fleet.assert_bytes([0], self.export(2))
            view = weft.WeightView(self.fleet.weights_dir(0))
            with view.acquire(timeout=30) as lock:
                w = lock["w"].torch()
                self.assertEqual((w.dtype, tuple(w.shape)), (torch.bfloat16, (200, 300)))
                self.assertTrue(torch.equal(w, self.tensors["w"]))
                self.assertEqual(lock["w"].torch().data_ptr(), w.data_ptr())
                self.assertEqual(lock["w"].numpy().ctypes.data, w.data_ptr())
            del lock, view
            gc.collect()
            w[0, 0] = 3  # a page of this process: the file stays
            self.assertEqual(float(w[0, 0]), 3)
            self.fleet.assert_bytes([0], self.work / "step-2")
            for name, indices, values in weft.adapters.scatter_updates(
                    weft.WeightView(self.fleet.weights_dir(0)).changes(2, since=1), device="cpu"):
                self.assertEqual((indices.dtype, values.dtype), (torch.int64, torch.bfloat16))
                self.assertTrue(torch.equal(self.tensors[name].view(-1)[indices], values))

    def test_minimal_examples_train_and_follow(self):
        rollout = subprocess.Popen([sys.executable, "-B", EXAMPLES / "minimal_rollout.py", self.fleet.weights_dir(0), "3"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(rollout.wait)
        self.addCleanup(rollout.kill)
        done = subprocess.run([sys.executable, "-B", EXAMPLES / "minimal_trainer.py", self.fleet.address, self.base, "2"],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("RefitReport"), 2, done.stdout)
        out, error = rollout.communicate(timeout=120)
        self.assertEqual(rollout.returncode, 0, error)
        # Half of the way to 1 with each step.
        self.assertEqual(out.splitlines()[-1], "3 0.75", out)
        wait_until("the node tells version 3", lambda: self.fleet.members()["node-0"]["version"] == 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
