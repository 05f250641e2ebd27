"""Autograd inside a trace: functions with gradients of their own, histories, checkpoints and
gradient scaling.
"""
