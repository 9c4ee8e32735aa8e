"""What the commands print: tables and text for people, JSON for programs, progress on standard error."""
