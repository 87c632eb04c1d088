"""What this package asks of Colab."""

from google.colab.output._widgets import enable_custom_widget_manager

__all__ = ["enable_custom_widget_manager"]
