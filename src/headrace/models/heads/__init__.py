"""Heads that guess the token after next from what a model computed of the last one."""

from headrace.models.heads.eagle3 import Eagle3Head, load_eagle3
from headrace.models.heads.head import DraftHead
from headrace.models.heads.mtp import MtpHead, load_mtp

__all__ = ["DraftHead", "Eagle3Head", "MtpHead", "load_eagle3", "load_mtp"]
