"""Published image sets, read from their published files; see catalog.py for which ones."""
