"""Saves on a disk that fills up, and on the same disk with room again: `full_disk.py PLACE BYTES_LEFT`.

Prints what happened as JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from healthd.trainer.adapters.pytorch import TrainingCheckpoints
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError


def main() -> None:
    place = Path(sys.argv[1])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.Linear(512, 512)  # 1 MB
    checkpoints = TrainingCheckpoints(place / "c", model, torch.optim.SGD(model.parameters(), lr=0.1))
    said = []
    checkpoints.save(1)
    (place / "filler").write_bytes(bytes(shutil.disk_usage(place).free - int(sys.argv[2])))
    for save in (lambda: checkpoints.save(2), lambda: checkpoints.save_async(3), lambda: checkpoints.save_async(4)):
        try:
            save()
            said.append("")
        except CheckpointError as error:
            said.append(str(error))
    begin_full, left = checkpoints.load_latest(), sorted(path.name for path in (place / "c").iterdir())
    (place / "filler").unlink()
    checkpoints.save(5)
    checkpoints.close()
    print(json.dumps({"said": said, "begin_full": begin_full, "left": left, "begin": checkpoints.load_latest()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
