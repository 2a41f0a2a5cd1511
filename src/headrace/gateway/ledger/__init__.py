"""The ledger of what every request took, on disk, and its reports."""
