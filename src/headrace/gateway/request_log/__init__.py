"""Requests and answers as they were sent, stored if the file enables it."""
