"""Where pickles of Programs look for the class; it lives in `programs`."""

from .programs.program import Program as Program
