"""The nouns of the centre, as frozen records: no behaviour beyond what a record can answer about itself."""
