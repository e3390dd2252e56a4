"""Where Waybill goes, decided without asking anybody."""
