"""Programs whose gradients the caller asks for: forward and backward as two programs."""
