"""What the gateway tells of itself: metrics, spans, its log, how it stands."""
