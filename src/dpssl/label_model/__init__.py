"""Step 2: votes of labeling functions in, soft labels out. Imports numpy, scipy, torch and safetensors only."""

from dpssl.label_model.analysis import LFSummary, reliability_table
from dpssl.label_model.answers import pivot_answers
from dpssl.label_model.dependence import effective_lfs
from dpssl.label_model.model import LabelModel
from dpssl.label_model.tally import VoteTally, tally_votes
from dpssl.label_model.variants import DEFAULT_VARIANT, VARIANTS, confidence_for
from dpssl.label_model.vote_files import read_votes
from dpssl.label_model.vote_table import VoteTable
from dpssl.label_model.votes import covered

__all__ = [
    "DEFAULT_VARIANT",
    "VARIANTS",
    "LFSummary",
    "LabelModel",
    "VoteTable",
    "VoteTally",
    "confidence_for",
    "covered",
    "effective_lfs",
    "pivot_answers",
    "read_votes",
    "reliability_table",
    "tally_votes",
]
