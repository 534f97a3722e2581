"""Labels corrected by a person: the queue of images, `corrections.csv`, and the page to work on. Loads no network."""
