"""Requests and answers as they were told, kept where the file asks for it."""
