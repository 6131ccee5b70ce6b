"""The command `file-skipping`: its arguments, its output, and what each command runs."""
