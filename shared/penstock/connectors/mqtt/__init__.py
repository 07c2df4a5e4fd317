"""``mqtt``: topics of an MQTT broker."""

from penstock.connectors.mqtt.connector import MqttConnector

__all__ = ["MqttConnector"]
