"""One file per rule; each has `judge(findings) -> Judgement`. The list of rules is in service/detect/engine.py."""
