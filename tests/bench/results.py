# results.py: result files as results.hpp writes them: the computer, the commit, one line per measurement.
# For the benchmarks in Python; docs/results/tables.py puts these files into README.md and docs.
# from results import gpu_environment, write_results; write_results("out.json", gpu_environment(), rows)
import datetime
import json
import os
import subprocess


def first_line(*command):
    try:
        found = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        found = []
    return found[0].strip() if found else "unknown"


def commit_and_date():
    """FLASH_COMMIT serves where the sources are a copy without their history."""
    commit = os.environ.get("FLASH_COMMIT") or first_line("git", "rev-parse", "--short", "HEAD")
    return {"commit": commit, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}


def gpu_environment():
    import torch

    def smi(query):
        return first_line("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")

    return {
        "gpu": smi("name"),
        "driver": smi("driver_version"),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
        "memory": smi("memory.total"),
        "sm_clock_max": smi("clocks.max.sm"),
        "memory_clock_max": smi("clocks.max.mem"),
        "power_limit": smi("power.limit"),
        **commit_and_date(),
    }


def our_phase(directory):
    """Whose results the files of flash-backward-precision are."""
    with open(os.path.join(directory, "phase"), encoding="utf-8") as file:
        return "phase " + file.read()[:2]


def write_results(path, environment, rows):
    text = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    where = json.dumps(environment, indent=4, ensure_ascii=False).replace("\n}", "\n  }")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{\n  "environment": {where},\n  "rows": [\n    {text}\n  ]\n}}\n')
