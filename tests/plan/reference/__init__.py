"""Tests of the reference pages."""
