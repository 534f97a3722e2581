"""What a run gives away: labels in the formats of other tools, and the end model. Only `model` loads a network."""
