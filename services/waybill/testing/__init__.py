"""What tests of the fabric and of its users share: fakes, movable clocks, eventually()."""
