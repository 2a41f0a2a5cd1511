"""Heads that guess the tokens after next from what a model computed of the last ones."""

from headrace.models.heads.dflash import DflashHead, load_dflash
from headrace.models.heads.eagle3 import Eagle3Head, load_eagle3
from headrace.models.heads.head import DraftHead, check_vocabulary
from headrace.models.heads.medusa import MedusaHead, load_medusa
from headrace.models.heads.mtp import MtpHead, load_mtp
from headrace.models.heads.mtp_folder import MtpFolder, open_mtp_folder

__all__ = [
    "DflashHead",
    "DraftHead",
    "Eagle3Head",
    "MedusaHead",
    "MtpFolder",
    "MtpHead",
    "check_vocabulary",
    "load_dflash",
    "load_eagle3",
    "load_medusa",
    "load_mtp",
    "open_mtp_folder",
]
