"""A fleet in imagination, to compare policies: only what the world does is invented, decisions are the real pipeline's. Pure: chance is handed in."""
