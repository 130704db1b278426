//! Frames2Py core.
