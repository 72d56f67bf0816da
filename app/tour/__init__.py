"""The page that explains ACE-NODE in five steps."""
