"""What people write beside a run."""
