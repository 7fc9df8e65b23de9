"""A process that ends by SIGKILL when an effect is delivered and not yet recorded: the next one delivers it again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def dispatch(folder: Path, how: str) -> tuple[int, str]:
    script = Path(__file__).with_name("effects_child.py")
    ended = subprocess.run(
        [sys.executable, str(script), str(folder), how], stdout=subprocess.PIPE, text=True, check=False
    )
    return ended.returncode, ended.stdout.strip()


def test_between_delivery_and_record_an_effect_is_delivered_again_with_the_same_key(tmp_path: Path) -> None:
    assert dispatch(tmp_path, "dies") == (-signal.SIGKILL, "")
    assert dispatch(tmp_path, "dies") == (-signal.SIGKILL, "")
    assert dispatch(tmp_path, "lives") == (0, "False")
    assert dispatch(tmp_path, "dies") == (0, "True")  # it would, if it were called
    assert (tmp_path / "received").read_text() == "mail:1 hello\n" * 3
