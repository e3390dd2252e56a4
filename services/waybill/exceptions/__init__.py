"""Exceptions: deliveries that may stay unacknowledged, for a linked reason, by a second person's word, for a time."""

from waybill.exceptions.book import ExceptionBook
from waybill.exceptions.core.moves import Draft, ExceptionRecord, ExceptionState, Move

__all__ = ["Draft", "ExceptionBook", "ExceptionRecord", "ExceptionState", "Move"]
