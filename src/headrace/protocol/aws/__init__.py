"""What AWS does its own way: signed requests and binary event streams."""
