"""What a campaign decides: draws, mischief, schedule, verdict. No I/O, no clock, and nothing of Waybill."""
