"""The hostile texts of tests/cases/xss_payloads.txt."""

from pathlib import Path

FILE = Path(__file__).with_name("xss_payloads.txt")
PAYLOADS = [line for line in FILE.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]
